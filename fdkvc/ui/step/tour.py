"""The guided walk: stops in prepared dialogs, each a view with a text made from its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import streamlit as st

from fdkvc.experiments.benchmark import Benchmark
from fdkvc.explain.course import term_courses
from fdkvc.explain.explain import explain, life, turn_view
from fdkvc.explain.overlap import first_difference
from fdkvc.policies import policy_named
from fdkvc.policies.fd_kvc import DECAY
from fdkvc.run.fork import Fork
from fdkvc.run.trace import Rule
from fdkvc.synthetic.scenarios import World, scenario_named
from fdkvc.ui.kit.fields import adopt, held
from fdkvc.ui.kit.lanes import FORK, Lane, overlap
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.runs import DialogChoice, Run, RunChoice, load_fork, load_run
from fdkvc.ui.kit.sidebar import view_fields
from fdkvc.words import contrast, count, listed, percent


@dataclass(frozen=True)
class Stop:
    """One stop of the walk.

    Attributes
    ----------
    tell : function (Run, turn, token) to str
        Writes the text from the run.
    turn : int
    view : mapping of str to str
        The rest of the view, as in a permalink.
    pick : function (Run, turn) to int, optional
        Chooses the entry to pin.
    fork : Fork, optional
        A fork to show beside the run.
    """

    tell: Callable[[Run, int, int], str]
    turn: int
    view: Mapping[str, str] = field(hash=False)
    pick: Callable[[Run, int], int] | None = None
    fork: Fork | None = None

    @property
    def choice(self) -> RunChoice:
        """The run that it shows."""
        scenario = scenario_named(self.view["scenario"])
        dialog = DialogChoice(scenario, int(self.view["seed"]), World())
        return RunChoice(dialog, policy_named(self.view["policy"]), Benchmark.budget)

    @property
    def token(self) -> int | None:
        """The entry to pin, if any."""
        return self.pick(load_run(self.choice), self.turn) if self.pick else None

    @property
    def words(self) -> str:
        """The text."""
        return self.tell(load_run(self.choice), self.turn, self.token or 0)


# ------------------------------------------------------------------------------- facts of runs


def holds(run: Run, turn: int) -> dict[str, int]:
    """Count the entries kept after a turn by topic."""
    made = turn_view(run.trace, run.dialogs, 0, turn)
    topics = run.dialogs.topics_of(0, made.token[made.kept])
    return {topic: topics.count(topic) for topic in sorted(set(topics))}


def _held(run: Run, turn: int) -> str:
    return listed([f"{many} {topic}" for topic, many in holds(run, turn).items()])


def _topic(run: Run, turn: int) -> str:
    return run.dialogs.topic_label(run.dialogs.current[0, turn])


def gathered(run: Run, turn: int, token: int) -> dict[str, float]:
    """Return how much an entry's score rose during each topic, up to a turn."""
    course = life(run.trace, run.dialogs, 0, token)
    rises = np.diff(course.score[course.turn <= turn], prepend=0)
    topics = [_topic(run, int(past)) for past in course.turn[course.turn <= turn]]
    return {
        topic: float(sum(rise for at, rise in zip(topics, rises, strict=True) if at == topic))
        for topic in sorted(set(topics))
    }


def oldest(run: Run, turn: int) -> int:
    """Return the oldest token in the cache."""
    made = turn_view(run.trace, run.dialogs, 0, turn)
    return int(made.token[made.kept][0])


def nearly_kept(run: Run, turn: int) -> int:
    """Return the best of the older entries that the budget evicted."""
    made = turn_view(run.trace, run.dialogs, 0, turn)
    gone = np.flatnonzero((made.rule == Rule.budget) & ~made.new)
    return int(made.token[gone[np.argmax(made.score[gone])]])


def rescued(run: Run, turn: int) -> int:
    """Return the kept entry whose rank rose most since the turn before."""
    return max(_ranks(run, turn).items(), key=lambda each: each[1][0] - each[1][1])[0]


def _ranks(run: Run, turn: int) -> dict[int, tuple[int, int]]:
    """Return the ranks, in the turn before and in this one, of entries kept in both."""
    before, now = (_ranked(run, each) for each in (turn - 1, turn))
    return {token: (before[token], now[token]) for token in before.keys() & now.keys()}


def _ranked(run: Run, turn: int) -> dict[int, int]:
    made = turn_view(run.trace, run.dialogs, 0, turn)
    rank = made.pick(made.entries.rank)
    return dict(zip(made.token[made.kept].tolist(), rank[made.kept].tolist(), strict=True))


# ------------------------------------------------------------------------------- the stops


def _the_cache_fills(run: Run, turn: int, token: int) -> str:
    return (
        f"The first {count(turn + 1, 'turn')} are on topic {_topic(run, turn)}, so the cache "
        f"holds {_held(run, turn)}. Under any policy there is nothing else to keep."
    )


def _half_of_it_follows(run: Run, turn: int, token: int) -> str:
    protected = int(turn_view(run.trace, run.dialogs, 0, turn).protected.sum())
    return (
        f"The dialog moves to {_topic(run, turn)} for good. H2O protects the newest "
        f"{count(protected, 'entry', 'entries')} and fills the other slots with the entries of "
        f"most cumulative attention, so the cache holds {_held(run, turn)}."
    )


def _the_cache_is_stale(run: Run, turn: int, token: int) -> str:
    sums, on = gathered(run, turn, token), _topic(run, turn)
    topic = run.dialogs.topics_of(0, np.array([token]))[0]
    turns = turn - int(run.dialogs.born[0, token]) + 1
    return (
        f"Six turns later it still holds {_held(run, turn)}: the cache is stale. Token {token} of "
        f"{topic} has received attention for {count(turns, 'turn')}, "
        f"{percent(sums[on] / sum(sums.values()))} of it while {on} was on. A sum never shrinks, "
        "so it rewards age."
    )


def _the_new_has_no_time(run: Run, turn: int, token: int) -> str:
    why = explain(run.trace, run.dialogs, 0, turn, token)
    assert why.score is not None
    assert why.cutoff is not None
    assert why.marginal is not None
    turns, theirs = (turn - int(run.dialogs.born[0, each]) + 1 for each in (token, why.marginal))
    own, last = contrast(why.score, why.cutoff)
    return (
        f"New entries have no time to catch up. Token {token} of {why.topic} left the protected "
        f"window after {count(turns, 'turn')} with a score of {own}; the last kept, token "
        f"{why.marginal}, has {last} from {count(theirs, 'turn')}."
    )


def _recency_lags(run: Run, turn: int, token: int) -> str:
    other = load_run(replace(run.choice, policy=policy_named("h2o")))
    on = _topic(run, turn)
    mine, theirs = (holds(each, turn).get(on, 0) for each in (run, other))
    than = "fewer than" if mine < theirs else "more than" if mine > theirs else "as many as"
    return (
        f"The same dialog under FD-KVC. At the change to {on} it holds {_held(run, turn)}: {mine} "
        f"of {on}, {than} H2O, which has {theirs}. Older entries still score high."
    )


def _recency_decays(run: Run, turn: int, token: int) -> str:
    shares = {name: left for each in term_courses(run.trace) for name, left in each.shares.items()}
    lost = percent(1 - float(shares[DECAY.name][turn]))
    return (
        f"But recency loses {lost} every turn, and only entries similar to the query regain it. "
        f"Two turns later the cache holds {_held(run, turn)}."
    )


def _a_fork(run: Run, turn: int, token: int) -> str:
    change = _FASTER
    other = load_fork(run, change)
    parted = first_difference(overlap(run, other))
    changed = listed(change.changes(run.choice.policy, run.choice.budget))
    return (
        f"What if recency had decayed faster? The lower lane continues the run after turn "
        f"{change.turn} with {changed}. They diverge in turn {parted}; now the fork holds "
        f"{_held(other, turn)}, its parent {_held(run, turn)}."
    )


def _the_old_is_gone(run: Run, turn: int, token: int) -> str:
    lost = sorted(set(run.dialogs.topic_names) - set(holds(run, turn)))
    price = f"nothing of {listed(lost)} is left" if lost else "every topic still has entries"
    return f"At the end it holds {_held(run, turn)}. The cost of forgetting: {price}."


def _a_rescue(run: Run, turn: int, token: int) -> str:
    before, now = _ranks(run, turn)[token]
    topic = run.dialogs.topics_of(0, np.array([token]))[0]
    return (
        f"Another dialog, in which {_topic(run, turn)} returns in turn {turn}. Token {token} of "
        f"{topic}, from turn {run.dialogs.born[0, token]}, rises from rank {before} to {now}: the "
        "query is similar to it again, which raises its recency."
    )


_SHIFT = {"scenario": "shift", "seed": "7"}
_RETURN = {"scenario": "return", "seed": "7"}
_H2O, _FD_KVC = {"policy": "h2o"}, {"policy": "fd-kvc"}
_FASTER = Fork(2, policy_named("fd-kvc", gamma=0.6))

STOPS = (
    Stop(_the_cache_fills, 2, _SHIFT | _H2O),
    Stop(_half_of_it_follows, 3, _SHIFT | _H2O),
    Stop(_the_cache_is_stale, 9, _SHIFT | _H2O, oldest),
    Stop(_the_new_has_no_time, 9, _SHIFT | _H2O, nearly_kept),
    Stop(_recency_lags, 3, _SHIFT | _FD_KVC),
    Stop(_recency_decays, 5, _SHIFT | _FD_KVC, nearly_kept),
    Stop(_a_fork, 5, _SHIFT | _FD_KVC, nearly_kept, _FASTER),
    Stop(_the_old_is_gone, 9, _SHIFT | _FD_KVC),
    Stop(_a_rescue, 7, _RETURN | _FD_KVC, rescued),
)


def guided_walk(page: str) -> None:
    """Show the button that starts the walk, or those that step through it."""
    key = f"{page}/stop"
    at = st.session_state.get(key)

    def go(to: int | None) -> None:
        own = f"{page}/before-walk"
        if at is None:
            held_now = {field.name: field.written(held(page, field)) for field in view_fields(page)}
            st.session_state[own] = held_now
        st.session_state[key] = to
        if to is None:
            view = st.session_state.pop(own, {})
            adopt(page, view_fields(page, view), view)
            st.toast("Your settings are back: now try your own.", icon=":material/explore:")
        else:
            stop = STOPS[to]
            view = {**stop.view, "turn": str(stop.turn)}
            if stop.token is not None:
                view["entry"] = str(stop.token)
            adopt(page, view_fields(page, view), view)

    if at is None:
        st.button(
            "Guided walk",
            key=f"{page}/walk",
            icon=":material/explore:",
            on_click=go,
            args=(0,),
            help="Nine stops: H2O's stale cache, the same dialog under FD-KVC, a fork of it, and "
            "a rescued entry.",
        )
        return
    st.button("End the walk", key=f"{page}/walk-end", on_click=go, args=(None,))
    # Both are there at every stop: a button that is clicked again and again stays where it is.
    for words, name, to in (("Previous stop", "back", at - 1), ("Next stop", "next", at + 1)):
        st.button(
            plain(words),
            key=f"{page}/walk-{name}",
            type="primary" if name == "next" else "secondary",
            on_click=go,
            args=(to,),
            disabled=to not in range(len(STOPS)),
        )


def tell_stop(page: str, run: Run) -> None:
    """Show the text of the current stop, with this run's own numbers."""
    at = st.session_state.get(f"{page}/stop")
    if at is None:
        return
    stop = STOPS[at]
    last = "" if STOPS[at + 1 :] else " Now try your own: end the walk to get your settings back."
    with st.container(key="walk-stop"):
        if _stands(stop, run):
            st.info(
                Markdown("**Stop {} of {}.** {}{}").format(at + 1, len(STOPS), stop.words, last),
                icon=":material/explore:",
            )
        else:
            st.info(
                Markdown(
                    "**Stop {} of {}** is about {}. You have changed the settings: the next or "
                    "previous stop restores its own."
                ).format(at + 1, len(STOPS), stop.choice.policy.label),
                icon=":material/explore:",
            )


def _stands(stop: Stop, run: Run) -> bool:
    """Whether the page shows the run of a stop."""
    return replace(run.choice, asked=()) == stop.choice


def beside(page: str, run: Run) -> tuple[Lane, ...]:
    """Return the run and its fork as lanes if the current stop has a fork, else nothing."""
    at = st.session_state.get(f"{page}/stop")
    if at is None or (stop := STOPS[at]).fork is None or not _stands(stop, run):
        return ()
    return forked(run, stop.fork)


def forked(run: Run, change: Fork) -> tuple[Lane, Lane]:
    """Return a run and its fork as lanes."""
    policy = run.choice.policy
    parent = Lane(policy.name, policy.title, policy.name, run)
    label = f"fork of {parent.label}"
    return parent, Lane(FORK, label, label, load_fork(run, change), parent.name)
