"""What would have happened if: a run continued from one of its turns with something changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation, normalize
from fdkvc.cache import EMPTY, Cache, contains, enqueue
from fdkvc.parameters import check_count
from fdkvc.policies.base import Policy
from fdkvc.run.simulate import choose, simulate
from fdkvc.run.trace import State, Trace, computed_state
from fdkvc.synthetic.batch import DialogBatch


@dataclass(frozen=True)
class Fork:
    """What is changed, and after which turn; None leaves it as it was.

    Attributes
    ----------
    turn : int
        The last turn that stays as it was, counted from 0 over the dialog.
    budget : int, optional
        A smaller one evicts at the fork, a larger one adds empty slots.
    pinned : int, optional
        A cached token that is not evicted any more.
    dropped : int, optional
        A cached token that is removed at the fork.
    """

    turn: int
    policy: Policy | None = None
    budget: int | None = None
    pinned: int | None = None
    dropped: int | None = None

    def changes(self, policy: Policy, budget: int) -> list[str]:
        """Say what is changed in a run of this policy and budget, each in a few words.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> fd_kvc = policy_named("fd-kvc")
        >>> Fork(5, policy=fd_kvc.variant(gamma=0.8), budget=40, pinned=70).changes(fd_kvc, 56)
        ['recency decay at 0.8 instead of 0.88', 'budget 40 instead of 56', 'token 70 pinned']
        """
        said = []
        if self.policy is not None and not self.policy.is_a_variant_of(policy):
            said.append(f"{self.policy.title} instead of {policy.title}")
        elif self.policy is not None:
            for before, after in zip(
                policy.settings.values(), self.policy.settings.values(), strict=True
            ):
                if after != before:
                    words = f"at {after.default} instead of {before.default}"
                    said.append(f"{before.label.lower()} {words}")
        if self.budget is not None and self.budget != budget:
            said.append(f"budget {self.budget} instead of {budget}")
        if self.pinned is not None:
            said.append(f"token {self.pinned} pinned")
        if self.dropped is not None:
            said.append(f"token {self.dropped} dropped")
        return said

    def resets(self, policy: Policy) -> bool:
        """Whether its policy remembers something, but cannot go on with what this one remembers.

        It goes on if it is the same policy with other numbers. Other policies, and other choices
        of one, such as whose queries count, remember on scales of their own: a sum that begins
        at 1 would stand above all that began at 0, whatever attention they got. An option that was
        off has nothing to go on with.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> h2o, fd_kvc = policy_named("h2o"), policy_named("fd-kvc")
        >>> Fork(5, policy=h2o.variant(window=0.2)).resets(h2o)
        False
        >>> Fork(5, policy=h2o.variant(queries="each")).resets(h2o)
        True
        >>> Fork(5, policy=fd_kvc).resets(h2o)
        True
        """
        if self.policy is None or not self.policy.channels:
            return False
        mine, other = self.policy.core, policy.core
        if type(mine) is not type(other) or mine.channels != other.channels:
            return True
        theirs = policy.core.settings
        choices = [field for field in self.policy.core.settings.values() if field.choices]
        return any(field != theirs[field.name] for field in choices)


def fork(trace: Trace, dialogs: DialogBatch, change: Fork) -> Trace:
    """Continue a run after one of its turns with something changed.

    Only the turns after the fork are run; up to it, the run is `trace` itself.

    Parameters
    ----------
    trace : Trace
        Recorded with its entries. It may be a fork itself; what that pinned stays pinned.
    dialogs : DialogBatch
        What it ran on.
    change : Fork
        A token is that of every row.

    Returns
    -------
    Trace
        Of the turns after the fork.

    Raises
    ------
    ValueError
        If the turn was not recorded or is the last, a token to pin or drop is not cached after
        it, or the budget is below 1 or below the number of pinned tokens.

    Examples
    --------
    >>> from fdkvc.synthetic.draw import generate
    >>> from fdkvc.synthetic.scenarios import SCENARIOS
    >>> from fdkvc.policies import policy_named
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("fifo"), dialogs, budget=4)
    >>> future = fork(trace, dialogs, Fork(turn=2, pinned=93))
    >>> future.first_turn, future.kept[0, -1].tolist()
    (3, [93, 317, 318, 319])
    """
    policy, budget, pinned = _settings(trace, dialogs, change)
    start = (change.turn + 1, state_at_fork(trace, dialogs, change))
    return simulate(policy, dialogs, budget, start=start, pinned=pinned)


def state_at_fork(trace: Trace, dialogs: DialogBatch, change: Fork) -> State:
    """Return what the forked run starts from: what the turn left, with the change made to it.

    The same policy with other numbers goes on with what it remembers. One that starts anew (see
    `Fork.resets`) takes the cached entries as if the turn of the fork had brought them all,
    so that old and new stand on one scale: channels start as a new entry's and take up the turn's
    attention where the policy's do, row states start as in a new run. A second tier keeps the last
    that went to it. A smaller budget keeps the best by the score that the policy of the fork gives
    them now; if that, or a dropped token, takes entries away, the attention of the others is scaled
    up to 1.

    Parameters and errors are those of `fork`.
    """
    policy, budget, pinned = _settings(trace, dialogs, change)
    before, turn = trace.state_after(change.turn), dialogs.observe(change.turn)
    for token, verb in ((change.pinned, "pinned"), (change.dropped, "dropped")):
        if token is not None and not (before.cache.token == token).any(axis=1).all():
            raise ValueError(
                f"token {token} cannot be {verb}: it is not in the cache after turn {change.turn}"
            )

    anew = change.resets(trace.policy)
    cache = (_anew if anew else _continued)(before.cache, policy, turn)
    # The attention weights go where their entries go, like a channel.
    weights = {
        "attention_before": before.attention_before,
        "attention_after": before.attention_after,
    }
    carried = Cache(cache.token, {**cache.channels, **weights}, cache.state)
    if change.dropped is not None:
        carried = carried.without(cache.token == change.dropped)
    held = carried.token
    carried = _resized(carried, policy, turn, budget, pinned)
    evicted = np.where(contains(held, carried.token), EMPTY, held)
    channels = {name: carried[name] for name in cache.channels}
    cache = Cache(carried.token, channels, carried.state)

    lost = cache.present.sum(axis=1) < before.cache.present.sum(axis=1)
    state = computed_state(
        cache,
        carried["attention_before"],
        carried["attention_after"],
        before.output,
        enqueue(before.tier, evicted, policy.tier_places(budget, dialogs.keys.shape[1])),
    )
    return _attended(state, lost, policy, turn)


def _settings(trace: Trace, dialogs: DialogBatch, change: Fork) -> tuple[Policy, int, Ints | None]:
    """Return the policy, the slots and the pinned tokens of the fork, or say what is wrong."""
    last = trace.first_turn + trace.turns - 1
    if change.turn == last:
        raise ValueError(f"turn {last} is the last one, so nothing comes after a fork there")
    if change.pinned is not None and change.pinned == change.dropped:
        raise ValueError(f"token {change.pinned} cannot be both pinned and dropped")
    pinned = trace.pinned
    if change.pinned is not None:
        one = np.full((len(trace.kept), 1), change.pinned, np.intp)
        pinned = one if pinned is None else np.concatenate([pinned, one], axis=1)
    budget = trace.budget if change.budget is None else change.budget
    check_count("budget", budget, low=1 if pinned is None else max(1, pinned.shape[1]))
    policy = change.policy or trace.policy
    return policy, policy.capacity(budget, dialogs.keys.shape[1]), pinned


def _continued(cache: Cache, policy: Policy, turn: Observation) -> Cache:
    """Return the same entries with what was remembered of them, as far as this policy asks it."""
    start = _row_states(policy, len(cache.token))
    return Cache(
        cache.token,
        {name: cache[name] for name in policy.channels},
        {name: cache.state.get(name, value) for name, value in start.items()},
    )


def _anew(cache: Cache, policy: Policy, turn: Observation) -> Cache:
    """Return the same entries as if this turn had brought them to a new run of this policy."""
    brought = turn.with_new(cache.token)
    nothing = Cache(
        cache.token[:, :0],
        dict.fromkeys(policy.channels, np.zeros((len(cache.token), 0), np.float32)),
        _row_states(policy, len(cache.token)),
    )
    born = nothing.insert(cache.token, policy.init_channels(brought))
    return policy.after_insert(born, brought).where(turn.active, born)


def _row_states(policy: Policy, rows: int) -> dict[str, Floats]:
    """Return the row states that a new run starts with."""
    starts = policy.initial_state().items()
    return {name: np.full(rows, start, np.float32) for name, start in starts}


def _resized(
    cache: Cache, policy: Policy, turn: Observation, budget: int, pinned: Ints | None
) -> Cache:
    """Evict down to a smaller budget, or add the empty slots of a larger one."""
    rows, before = cache.token.shape
    slots = policy.slots(budget, turn.layers, turn.heads)
    if slots < before:
        kept = choose(policy, cache, policy.terms(cache, turn), turn, budget, pinned).kept
        return cache.keep(kept, slots)
    more = np.full((rows, slots - before), EMPTY, np.intp)
    return cache.insert(more, {name: np.zeros(more.shape, np.float32) for name in cache.channels})


def _attended(state: State, lost: Bools, policy: Policy, turn: Observation) -> State:
    """Share the attention among what is left, in the rows that lost an entry."""
    if not lost.any():
        return state
    cache = state.cache
    before: Floats = normalize(state.attention_before)
    after = policy.modulate(before, cache)
    column = lost[:, None]
    return computed_state(
        cache,
        np.where(column, before, state.attention_before),
        np.where(column, after, state.attention_after),
        np.where(column, turn.context(after, cache.token), state.output),
        state.tier,
    )
