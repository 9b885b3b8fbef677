"""What of a policy changes nothing in some dialogs, since they lack what it looks at."""

from __future__ import annotations

from collections.abc import Sequence

from fdkvc.policies import Policy
from fdkvc.policies.base import Available
from fdkvc.synthetic.batch import DialogBatch


def known_of(dialogs: DialogBatch) -> Available:
    """Return what is known of dialogs."""
    return Available(
        speakers=dialogs.speakers is not None,
        words=dialogs.words is not None,
        heads=dialogs.heads,
        layers=dialogs.layers,
    )


def idle(policies: Sequence[Policy], available: Available) -> list[str]:
    """Say, a sentence each, what of these policies changes nothing where no more is known.

    Examples
    --------
    >>> from fdkvc.policies import read_policy
    >>> idle([read_policy("fifo"), read_policy("pyramid(fifo)")], Available())
    ['Pyramid (FIFO): There is one layer here, so pyramid changes nothing.']
    """
    return [
        f"{policy.title}: {said}"
        for policy in policies
        for said in policy.without_effect(available)
    ]
