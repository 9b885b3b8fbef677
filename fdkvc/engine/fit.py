"""Fitting a whole text into a budget at once, as agents do when their context is full.

A policy that remembers nothing of earlier turns decides by what it sees at the end, so all tokens
may enter together; one that does runs turn by turn, with room for all, and evicts in the last turn.
"""

import numpy as np

from fdkvc.core.attention import Bools
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.simulate import initial_state, take_turn
from fdkvc.engine.trace import computed_state
from fdkvc.policies.base import Policy


def remembers(policy: Policy) -> bool:
    """Whether a policy decides by what it stored of earlier turns.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> remembers(policy_named("shift")), remembers(policy_named("h2o"))
    (False, True)
    """
    return "history" in policy.looks_at


def fit(policy: Policy, dialogs: DialogBatch, budget: int) -> Bools:
    """Return which tokens of a dialog (N,) stay when a policy fits it into a budget at its end.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> np.flatnonzero(fit(policy_named("sink"), generate(SCENARIOS["shift"]), budget=6)).tolist()
    [0, 1, 2, 3, 318, 319]
    """
    tokens, width = dialogs.keys.shape[1:]
    budget = policy.capacity(budget, tokens)
    last = dialogs.turns - 1
    turn = dialogs.observe(last)
    if remembers(policy):
        state = initial_state(policy, 1, max(budget, tokens), width, tokens)
        for number in range(last):
            state = take_turn(policy, state, dialogs.observe(number), max(budget, tokens)).after
    else:
        state = initial_state(policy, 1, budget, width)
        earlier = np.arange(int(dialogs.bounds[0, last]), dtype=np.intp)[None]
        channels = policy.init_channels(turn.with_new(earlier))
        state = computed_state(state.cache.insert(earlier, channels), state.attended, state.tier)
    kept = take_turn(policy, state, turn, budget).after.cache.token
    stays = np.zeros(tokens, np.bool_)
    stays[kept[kept >= 0]] = True
    return stays
