"""FD-KVC with salience: what was surprising and is not said again stays beside the newest."""

from __future__ import annotations

from dataclasses import dataclass

from fdkvc.parameters import with_default
from fdkvc.policies.fd_kvc import FDKVC


@dataclass(frozen=True)
class FDKVCSalience(FDKVC):
    """FD-KVC with a window, salience, and redundancy.

    The options are those of `FDKVC`. With salience as all of the score neither attention nor
    similarity decides anything: half of the budget is for the newest entries, and the rest for
    those that were improbable when they came, as that fades, unless a newer entry repeats them.
    The threshold is off, for what has faded need not go while there is room.
    The settings were searched on training dialogues of the Schema-Guided Dialogue
    dataset; ``fdkvc/policies/README.md`` has what they are worth on others, and each alone.
    """

    key = "fd-kvc-salience"
    label = "FD-KVC with salience"
    idea = (
        "Half of the budget is for the newest entries. The rest goes to what was surprising when "
        "it came, which fades turn by turn; what a newer entry repeats goes first."
    )
    source = "this project; tuned on the Schema-Guided Dialogue dataset"

    tau: float = with_default(FDKVC, "tau", 0.0)
    window: float = with_default(FDKVC, "window", 0.5)
    salience: float = with_default(FDKVC, "salience", 1.0)
    salience_decay: float = with_default(FDKVC, "salience_decay", 0.8)
    redundancy: float = with_default(FDKVC, "redundancy", 0.75)
