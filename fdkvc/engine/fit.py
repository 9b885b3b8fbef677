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


def fit(policy: Policy, dialogs: DialogBatch, budget: int) -> Bools:
    """Return which tokens of a dialog (N,) stay when a policy fits it into a budget at its end.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> np.flatnonzero(fit(policy_named("sink"), generate(SCENARIOS["shift"]), budget=6)).tolist()
    [0, 1, 2, 3, 318, 319]
    """
    tokens, width = dialogs.keys.shape[1:]
    # A page that is not full takes the slots of a full one.
    spare = max(policy.page_size - 1, 0)
    budget = min(policy.capacity(budget, tokens), tokens + spare)
    last = dialogs.turns - 1
    turn = dialogs.observe(last)
    if "history" in policy.looks_at:
        state = initial_state(policy, 1, 1 + spare, width)
        for number in range(last):
            earlier_turn = dialogs.observe(number)
            # For all so far: none is evicted.
            room = max(int(dialogs.bounds[0, number + 1]) + spare, 1)
            state = take_turn(policy, state, earlier_turn, room).end_state
    else:
        # Without a history, earlier tokens may enter as if they were new in the last turn.
        state = initial_state(policy, 1, budget, width)
        earlier = np.arange(int(dialogs.bounds[0, last]), dtype=np.intp)[None]
        channels = policy.init_channels(turn.with_new(earlier))
        state = computed_state(state.cache.insert(earlier, channels), state.attended)
    cache = take_turn(policy, state, turn, budget).end_state.cache
    stays = np.zeros(tokens, np.bool_)
    stays[cache.token[cache.present]] = True
    return stays
