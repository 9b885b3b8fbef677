"""What-if runs: a run continued from one of its turns with something changed."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Ints, Observation, normalize
from fdkvc.core.cache import EMPTY, Cache, contains, empty_cache, enqueue
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import check_count, written
from fdkvc.engine.simulate import choose, simulate
from fdkvc.engine.trace import Attended, State, Trace, computed_state
from fdkvc.policies.base import Policy
from fdkvc.policies.wrapper import inside


@dataclass(frozen=True)
class Fork:
    """What to change, and after which turn; None keeps the original value."""

    turn: int
    """The last unchanged turn of the dialog, from 0."""
    policy: Policy | None = None
    """The policy from the fork on."""
    budget: int | None = None
    """The budget from the fork on: a smaller one evicts at the fork, a larger one adds slots."""
    pinned: int | None = None
    """A cached token that is never evicted from here on."""
    dropped: int | None = None
    """A cached token that is removed at the fork."""

    def changes(self, policy: Policy, budget: int) -> list[str]:
        """Describe each change to a run of this policy and budget.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> fd_kvc = policy_named("fd-kvc")
        >>> Fork(5, policy=fd_kvc.variant(gamma=0.8), budget=40, pinned=7).changes(fd_kvc, 56)
        ['recency decay (γ) at 0.8 instead of 0.88', 'budget 40 instead of 56', 'token 7 protected']
        """
        changed = self.policy or policy
        words = []
        # Another policy or wrapper is named; otherwise each hyperparameter that differs.
        if [*map(type, inside(changed))] != [*map(type, inside(policy))]:
            words.append(f"{changed.title} instead of {policy.title}")
        else:
            for name, setting in policy.settings.items():
                changed_setting = changed.settings[name]
                if changed_setting != setting:
                    value = written(changed_setting.default)
                    original = written(setting.default)
                    words.append(f"{setting.title.lower()} at {value} instead of {original}")
        if self.budget is not None and self.budget != budget:
            words.append(f"budget {self.budget:,} instead of {budget:,}")
        if self.pinned is not None:
            words.append(f"token {self.pinned} protected")
        if self.dropped is not None:
            words.append(f"token {self.dropped} dropped")
        return words

    def resets(self, policy: Policy) -> bool:
        """Whether the fork's policy has channels and cannot continue with those of `policy`.

        The same policy with other numbers continues. Another policy, or another choice, such as
        which queries count, has channels on another scale: a sum that starts at 1 would exceed
        every sum that started at 0.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> h2o = policy_named("h2o")
        >>> others = h2o.variant(window=0.2), h2o.variant(queries="each"), policy_named("fd-kvc")
        >>> [Fork(5, policy=policy).resets(h2o) for policy in others]
        [False, True, True]
        """
        if self.policy is None or not self.policy.channels:
            return False
        core = self.policy.core
        original = policy.core
        if type(core) is not type(original) or core.channels != original.channels:
            return True
        choices = [field for field in core.settings.values() if field.choices]
        return any(field != original.settings[field.name] for field in choices)


def fork(trace: Trace, dialogs: DialogBatch, change: Fork) -> Trace:
    """Continue a run after one of its turns with something changed.

    Only the turns after the fork are run and returned; up to it, the run is `trace` itself, which
    was recorded with its entries. It may be a fork; its pinned tokens stay pinned. Tokens are
    pinned or dropped in every row.

    Raises a ValueError if the turn was not recorded or is the last, a token to pin or drop is not
    cached then, or the budget is below 1 or below the number of pinned tokens.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("fifo"), dialogs, budget=4)
    >>> future = fork(trace, dialogs, Fork(turn=2, pinned=93))
    >>> future.first_turn, future.kept_tokens[0, -1].tolist()
    (3, [93, 317, 318, 319])
    """
    policy, budget, pinned = _settings(trace, dialogs, change)
    start = (change.turn + 1, state_at_fork(trace, dialogs, change))
    return simulate(policy, dialogs, budget, start=start, pinned=pinned)


def state_at_fork(trace: Trace, dialogs: DialogBatch, change: Fork) -> State:
    """Return the state from which the forked run starts.

    The same policy with other numbers continues with its channels. One that resets (see
    `Fork.resets`) treats all cached entries as new in the turn of the fork, so that old and new are
    on one scale; row states start as in a new run. A second tier keeps its newest entries. A
    smaller budget keeps the best by the score of the fork's policy. If entries were evicted or
    dropped, the attention of the others is scaled up to a sum of 1.

    Parameters and errors are those of `fork`.
    """
    policy, budget, pinned = _settings(trace, dialogs, change)
    state = trace.result(change.turn).end_state
    turn = dialogs.observe(change.turn)
    for token, verb in ((change.pinned, "protected"), (change.dropped, "dropped")):
        if token is not None and not (state.cache.token == token).any(axis=1).all():
            raise ValueError(
                f"token {token} cannot be {verb}: it is not in the cache after turn {change.turn}"
            )

    # 1. The entries with channels of the fork's policy. Attention weights move with their entries,
    # like channels, through steps 2 and 3.
    cache = _entries(state.cache, policy, turn, reset=change.resets(trace.policy))
    attended = state.attended
    carried = cache.with_channels(
        raw_attention=attended.weights, modulated_attention=attended.modulated_weights
    )
    # 2. Drop the token; it does not wait in the second tier.
    if change.dropped is not None:
        carried = carried.without(cache.token == change.dropped)
    candidates = carried.token
    # 3. Fit the entries into the fork's budget.
    carried = _resized(carried, policy, turn, budget, pinned)
    evicted = np.where(contains(candidates, carried.token), EMPTY, candidates)
    channels = {name: carried[name] for name in cache.channels}
    cache = Cache(carried.token, channels, carried.state)

    # 4. Where a row lost entries, the attention of the others is scaled up to a sum of 1.
    has_losses = cache.count < state.cache.count
    attended = Attended(carried["raw_attention"], carried["modulated_attention"], attended.output)
    places = policy.tier_places(budget, dialogs.keys.shape[1])
    tier = enqueue(state.tier, evicted, places)
    if has_losses.any():
        weights = normalize(attended.weights)
        modulated = policy.modulate(weights, cache)
        output = turn.context(modulated, cache.token)
        rescaled = Attended(weights, modulated, output)
        attended = rescaled.where(has_losses, attended)
    return computed_state(cache, attended, tier)


def _settings(trace: Trace, dialogs: DialogBatch, change: Fork) -> tuple[Policy, int, Ints | None]:
    """Return the fork's policy, slots and pinned tokens; raise a ValueError if it is invalid."""
    last = trace.first_turn + trace.turns - 1
    if change.turn == last:
        raise ValueError(f"turn {last} is the last one, so no turn follows a fork there")
    if change.pinned is not None and change.pinned == change.dropped:
        raise ValueError(f"token {change.pinned} cannot be both protected and dropped")
    pinned = trace.pinned
    if change.pinned is not None:
        token = np.full((len(trace.kept_tokens), 1), change.pinned, np.intp)
        pinned = token if pinned is None else np.concatenate([pinned, token], axis=1)
    budget = trace.budget if change.budget is None else change.budget
    check_count("budget", budget, low=1 if pinned is None else max(1, pinned.shape[1]))
    policy = change.policy or trace.policy
    return policy, policy.capacity(budget, dialogs.keys.shape[1]), pinned


def _entries(cache: Cache, policy: Policy, turn: Observation, *, reset: bool) -> Cache:
    """Return the same entries with this policy's channels and row states.

    With `reset`, the entries start as if they were new in this turn of a new run; otherwise they
    keep their numbers.
    """
    nothing = empty_cache(len(cache.token), 0, policy.channels, policy.initial_state())
    if not reset:
        channels = {name: cache[name] for name in policy.channels}
        state = {name: cache.state.get(name, start) for name, start in nothing.state.items()}
        return Cache(cache.token, channels, state)
    # Rows without tokens in this turn skip `after_insert`, as in `take_turn`.
    as_new = turn.with_new(cache.token)
    started = nothing.insert(cache.token, policy.init_channels(as_new))
    return policy.after_insert(started, as_new).where(turn.active, started)


def _resized(
    cache: Cache,
    policy: Policy,
    turn: Observation,
    budget: int,
    pinned: Ints | None,
) -> Cache:
    """Evict down to a smaller budget, or add the empty slots of a larger one."""
    rows, old_slots = cache.token.shape
    slots = policy.slots(budget, turn.tokens.layers, turn.tokens.heads)
    if slots < old_slots:
        choice = choose(policy, cache, policy.terms(cache, turn), turn, budget, pinned)
        return cache.keep(choice.kept_slots, slots)
    added = empty_cache(rows, slots - old_slots, tuple(cache.channels), {})
    return cache.insert(added.token, added.channels)
