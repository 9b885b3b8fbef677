"""Attention sinks: which policies may evict a text's first tokens, and what that costs a model.

Pretrained models attend to the first tokens whatever they say (Xiao et al. 2024, *Efficient
Streaming Language Models with Attention Sinks*); the bundled model does not.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fdkvc.core.arrays import one_dialog
from fdkvc.core.cache import Cache
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.words import listed
from fdkvc.engine.simulate import protection
from fdkvc.policies import Policy

SINKS = 4
"""First tokens to protect: as many as in the measurement that `PROTECT` cites."""

PROTECT = (
    "In a pretrained model, protect the first tokens, as sinks(…) does: without them, FIFO, "
    "surprisal and FD-KVC lose more than random eviction that protects them. "
    "(SmolLM2-135M-Instruct, 30 dialogs of SGD's development split, 128 entries per head, KL from "
    "the full cache in nats per token: surprisal 0.50; with the first four tokens protected, "
    "surprisal 0.23 and random eviction 0.23; H2O, which protects none, 0.26.)"
)

MAX_TRIED = 1024
"""The largest budget that is tried: larger ones protect no fewer of the first tokens."""


class FirstTokensWarning(UserWarning):
    """A policy that can evict the first tokens of a text is used with a model."""


class _TwoLayers(DialogBatch):
    """Two rows of one dialog as the first and the last layer of a model."""

    layers: ClassVar[int] = 2


def sinks_of(policy: Policy, budget: int) -> int:
    """Return how many of a text's first `SINKS` tokens stay whatever their score.

    The policy is asked what it protects in a cache with more entries than the budget, whose first
    turn has these tokens. If layers differ, the one that protects the fewest counts.

    Examples
    --------
    >>> from fdkvc.policies import read_policy
    >>> [sinks_of(read_policy(name), 16) for name in ("fifo", "whitelist(fifo)", "sink", "full")]
    [0, 4, 4, 4]
    """
    # A text that is read again begins with tokens that serve as sinks, whatever was evicted.
    if not policy.bounded or policy.reads_again:
        return SINKS
    budget = min(budget, MAX_TRIED)
    tokens = SINKS + budget  # so that a window of the newest has none of the first
    vectors = np.zeros((tokens, 1), np.float32)
    arrays: Any = dict.fromkeys(("embeddings", "queries", "keys", "values"), vectors)
    dialog = one_dialog(**arrays, turn_lengths=[SINKS, tokens - SINKS])
    state = {name: np.full(2, value) for name, value in policy.initial_state().items()}
    channels = dict.fromkeys(policy.channels, np.zeros((2, tokens), np.float32))
    entries = Cache(np.tile(np.arange(tokens), (2, 1)), channels, state)
    turn = _TwoLayers(**vars(stack([dialog, dialog]))).observe(1)
    protected = protection(policy, entries, turn, policy.budgets(budget, turn), None)
    # The product stays 1 up to the first unprotected token.
    return int(protected[:, :SINKS].cumprod(axis=1).sum(axis=1).min())


def sinks_notes(policies: Sequence[Policy], budgets: Sequence[int]) -> list[str]:
    """Name the policies that can evict the first tokens of a text, and say what that costs a model.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> sinks_notes([policy_named("fifo"), policy_named("sink")], [16])[0].partition(". ")[0]
    'The first tokens of a text are not protected under FIFO'
    >>> sinks_notes([policy_named("sink")], [16])
    []
    """
    titles = []
    for policy in policies:
        fewest = min((sinks_of(policy, budget) for budget in budgets), default=SINKS)
        if fewest < SINKS:
            titles.append(policy.title)
    if not titles:
        return []
    return [f"The first tokens of a text are not protected under {listed(titles)}. {PROTECT}"]
