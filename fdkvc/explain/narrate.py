"""What happened in a turn, step by step, in sentences made from the record of a run.

A policy declares its steps: their kind, and what they read and write. The narrator knows how to
describe each kind of step, and no policy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fdkvc.core.attention import Bools, Floats
from fdkvc.core.dialogs import DialogBatch, topic_bit
from fdkvc.core.words import all_of, contrast, count, listed, number, percent, sentence
from fdkvc.engine.trace import Rule, Trace
from fdkvc.explain.course import common_factor
from fdkvc.explain.decisions import TurnView, turn_view
from fdkvc.policies.base import Step, StepKind

NAMED_GROUPS = 4
"""How many topics a sentence names; the others are grouped."""

SAME_WEIGHT = 1e-6
"""Tolerance of an attention weight, for rounding."""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StepStory:
    """One step of a turn as it happened."""

    step: Step
    """As the policy declares it."""
    sentence: str
    """What happened."""
    inputs: Pairs = ()
    """(label, text) of the numbers that the step reads."""
    outputs: Pairs = ()
    """(label, text) of the numbers that it writes."""


def narrate(trace: Trace, dialogs: DialogBatch, row: int, turn: int) -> list[StepStory]:
    """Describe a turn of a row step by step, as the policy declares its steps.

    `turn` counts from 0 over the dialog. Raises a ValueError if the trace was recorded without
    entries, or has no such row or turn.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named, simulate
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("sink"), dialogs, budget=56)
    >>> for story in narrate(trace, dialogs, row=0, turn=3):
    ...     print(f"{story.step.name}: {story.sentence}")
    Position: The position of 88 entries ranges from 0 to 127, mean 81.682.
    Protection: 4 of 88 entries are protected (4 A); by score alone 4 of them would be evicted.
    Eviction and insertion: The budget evicted 32 of 88 entries (32 A), none of them new; \
the last kept entry scored 76, the best evicted entry 75.
    >>> print(headline(trace, dialogs, row=0, turn=3))
    Turn 3: the topic changes to B; 32 new tokens, 32 evicted (32 A); 32 of 56 kept \
are about B.
    """
    view = turn_view(trace, dialogs, row, turn)
    if not view.has_tokens:
        words = "the turn has no tokens, so this step changed nothing"
        return [StepStory(step, sentence(words)) for step in trace.policy.steps]
    stories = []
    for step in trace.policy.steps:
        words = sentence(_DESCRIBE[step.kind](view, step))
        stories.append(StepStory(step, words, *_numbers(view, step)))
    return stories


def headline(trace: Trace, dialogs: DialogBatch, row: int, turn: int) -> str:
    """Describe a turn in one sentence.

    Parameters and errors are those of `narrate`.
    """
    view = turn_view(trace, dialogs, row, turn)
    new = int(view.new.sum())
    evicted = ~view.kept
    parts = []
    if view.topic_move:
        parts.append(_TOPIC[view.topic_move][0].format(view.current))
    if new:
        parts.append(
            f"{count(new, 'new token')}, {evicted.sum():,} evicted{view.tally(evicted)}"
        )
    else:
        parts.append("no new tokens, nothing changed")
    if view.current:
        bit = topic_bit(dialogs.current[row, turn])
        of_topic = (dialogs.topic_bits[row, view.token] & bit) != 0
        current = int((view.kept & of_topic).sum())
        verb = "is" if current == 1 else "are"
        parts.append(f"{current:,} of {view.kept.sum():,} kept {verb} about {view.current}")
    return f"Turn {turn}: {'; '.join(parts)}."


def headline_of_several(
    traces: Sequence[Trace], dialogs: DialogBatch, row: int, turn: int
) -> str:
    """Describe in one sentence what the caches of several runs share after a turn."""
    caches = [trace.kept_tokens[row, turn] for trace in traces]
    # Empty slots, −1, may be in the intersection and do not count.
    shared = int(np.count_nonzero(reduce(np.intersect1d, caches) >= 0))
    read = int(dialogs.bounds[row, turn + 1])
    verb = "is" if shared == 1 else "are"
    place = "all caches" if len(traces) > 1 else "the cache"
    return f"Turn {turn}: {shared:,} of {count(read, 'token')} read {verb} in {place}."


def first_return(dialogs: DialogBatch) -> int | None:
    """Return the first turn of the first row in which an earlier topic returns; None if none does.

    Between the two, the dialog was about something else.
    """
    topics = dialogs.current[0, : dialogs.turn_counts[0]].tolist()
    for turn, topic in enumerate(topics):
        if topic >= 0 and topic in topics[:turn] and topic != topics[turn - 1]:
            return turn
    return None


def return_sentence(runs: Iterable[tuple[str, Trace]], dialogs: DialogBatch) -> str:
    """Say what each run of the first row still holds of the first topic that returns.

    Each of `runs` has a label and a trace.
    """
    returned = first_return(dialogs)
    if returned is None:
        return "No earlier topic returns in this dialog."
    # 1. The last turn before the return that had the topic.
    topics = dialogs.current[0].tolist()
    topic = topics[returned]
    last = max(turn for turn in range(returned) if topics[turn] == topic)
    of_topic = (dialogs.topic_bits[0] & topic_bit(dialogs.current[0, last])) != 0
    # 2. How many of the topic's tokens each run holds after each turn between them.
    parts = []
    for label, trace in runs:
        counts = []
        for turn in range(last, returned):
            token = trace.kept_tokens[0, turn]
            counts.append(int(of_topic[token[token >= 0]].sum()))
        held = counts[-1] or f"0 (none since turn {last + counts.index(0)})"
        parts.append(f"{label} {held}")
    tokens = count(int(of_topic[: dialogs.bounds[0, returned]].sum()), "earlier token")
    return (
        f"When topic {dialogs.topic_label(topic)} returns in turn {returned}, this is left of its "
        f"{tokens}: {listed(parts)}."
    )


_TOPIC = {
    "begins": ("the dialog starts with {}", "the dialog starts with {}"),
    "stays": ("{} continues", "the topic stayed {}"),
    "returns": ("the topic returns to {}", "the topic returned to {}"),
    "turns": ("the topic changes to {}", "the topic changed to {}"),
}
"""How the topic moves, in words for a headline (present) and for a step (past)."""


# ------------------------------------------------------------------------------- the sentences


def _describe_value(view: TurnView, step: Step) -> str:
    parts = []
    for name in step.writes or step.reads:
        value = view.quantity(name)
        label = view.policy.quantity_name(name)
        if isinstance(value, float):
            parts.append(f"the {label} is {number(value)}")
        elif value is not None and np.isfinite(value).any():
            values = value[np.isfinite(value)]
            low, high = contrast(float(values.min()), float(values.max()))
            mean = number(float(values.mean(dtype=float)))
            level = f"is {low}" if low == high else f"ranges from {low} to {high}, mean {mean}"
            parts.append(f"the {label} of {_entries(len(values))} {level}")
    return "; ".join(parts) or "the cache was empty, so there was nothing to compute"


def _describe_change(view: TurnView, step: Step) -> str:
    """Describe the gains and losses of old entries, and the values of new ones."""
    read_values, written_values, changed = view.change(step)
    policy = view.policy
    new = view.new
    subject = policy.quantity_name(step.channel(policy.channels) or step.writes[0])
    changed &= ~new
    if changed.any():
        old = read_values[changed]
        now = written_values[changed]
        # One factor for all entries, such as a decay, or a gain of each entry's own: no factor
        # raises a 0.
        share = common_factor(old, now)
        if share is None or np.isnan(share) or now[old == 0].any():
            gain = written_values.astype(float) - read_values
            parts = [_gain_words(view, subject, gain, changed)]
        else:
            parts = [_factor_words(subject, share, old, now)]
    else:
        parts = ["the cache was empty, so there was nothing to change"]
    if step.includes_new and new.any():
        start = number(float(written_values[new].mean(dtype=float)))
        level = f"has {start}" if new.sum() == 1 else f"have {start} on average"
        parts.append(f"{_the(int(new.sum()), 'new')} {level}")
    return "; ".join(parts)


def _factor_words(subject: str, share: float, values: Floats, new_values: Floats) -> str:
    mean = float(values.mean(dtype=float))
    new_mean = float(new_values.mean(dtype=float))
    old, now = contrast(mean, new_mean)
    entries = all_of(len(values), "old entry", "old entries")
    pronoun = "their" if len(values) > 1 else "its"
    if old == now:
        return f"{entries} kept {pronoun} {subject}"
    verb = "lost" if share < 1 else "gained"
    part = percent(abs(1 - share), 0 if abs(1 - share) >= 0.01 else 2)
    return f"{entries} {verb} {part} of {pronoun} {subject}: the mean went from {old} to {now}"


def _gain_words(view: TurnView, subject: str, change: Floats, chosen: Bools) -> str:
    """Describe the gain or loss of each topic, largest first, and the largest of any entry."""
    largest = float(change[chosen].max())
    count_of_chosen = int(chosen.sum())
    if _gain(largest) == _gain(float(change[chosen].min())):  # equal at the shown digits
        words = f"{all_of(count_of_chosen, 'old entry', 'old entries')} {_gain(largest)}"
        words += f" in {subject}"
    else:
        groups = []
        for topic, members in view.groups(chosen).items():
            groups.append((_the(int(members.sum()), topic or "old"), change[members]))
        groups.sort(key=lambda group: -group[1].mean())
        if len(groups) > NAMED_GROUPS:  # the smallest gains become one group
            smallest = np.concatenate([gains for _, gains in groups[NAMED_GROUPS - 1 :]])
            groups = [*groups[: NAMED_GROUPS - 1], (_the(len(smallest), "other"), smallest)]
        parts = [f"{label} {_gain(float(gains.mean()))}" for label, gains in groups]
        words = f"{listed(parts)} in {subject}"
        if len(groups) < count_of_chosen:
            words += " on average"
            if largest > 0:
                words += f", and none gained more than {number(largest)}"
    if not view.topic_move:
        return words
    return f"{_TOPIC[view.topic_move][1].format(view.current)}: {words}"


def _gain(change: float) -> str:
    return f"{'lost' if change < 0 else 'gained'} {number(abs(change))}"


def _describe_rate(view: TurnView, step: Step) -> str:
    """Describe the change of each row state; each causes the next."""
    parts = []
    for name in step.writes:
        label = view.policy.quantity_name(name)
        value = view.quantity(name)
        previous = view.before(name)
        start, end = contrast(previous, value)
        verb = "rose" if value > previous else "fell"
        move = f"stayed at {end}" if start == end else f"{verb} from {start} to {end}"
        parts.append(f"the {label} {move}")
    words = ", so ".join(parts)
    # Without old entries a rate is computed from nothing.
    return f"the cache was empty: {words}" if view.new.all() else words


def _describe_protection(view: TurnView, step: Step) -> str:
    """Count the protected entries, and those saved by protection."""
    protected = int(view.protected.sum())
    stood = int(view.stood.sum())
    if not protected:
        return "no entry is protected"
    verb = "is" if protected == 1 else "are"
    words = f"{protected:,} of {_entries(stood)} {verb} protected{view.tally(view.protected)}"
    rules = [rule for rule in view.policy.steps if rule.kind == "protect"]
    if len(rules) > 1:
        words = f"by all rules together, {words}"
    spared = int((view.protected & ~view.kept_by_score).sum())
    return f"{words}; by score alone {spared or 'none'} of them would be evicted"


def _describe_eviction(view: TurnView, step: Step) -> str:
    """Count the evictions by rule and topic, and the new entries among them."""
    stale = view.rule == Rule.threshold
    evicted = view.rule == Rule.budget
    stood = int(view.stood.sum())
    budget = view.trace.budget
    parts = []
    if stale.any():
        limit = f", which scored below {number(view.threshold[1])}" if view.threshold else ""
        parts.append(
            f"the threshold evicted {_entries(stale.sum())}{view.tally(stale)}{limit}"
        )
    if evicted.any():
        parts.append(
            f"the budget evicted {evicted.sum():,} of {_entries(stood)}{view.tally(evicted)}, "
            f"{(evicted & view.new).sum() or 'none'} of them new"
        )
        if view.cutoff is None or view.best_evicted is None:
            parts.append("every kept entry is protected")
        else:
            lowest, highest = contrast(view.cutoff, view.best_evicted)
            parts.append(
                f"the last kept entry scored {lowest}, the best evicted entry {highest}"
            )
    else:
        parts.append(
            f"the budget evicted none of {_entries(stood)}, as the cache has room for {budget:,}"
        )
    return "; ".join(parts)


def _describe_attention(view: TurnView, step: Step) -> str:
    """Describe the change of each topic's attention, largest gain first."""
    weights, new_weights, changed = view.change(step)
    moves = np.abs(new_weights[changed].astype(float) - weights[changed])
    if moves.max() < SAME_WEIGHT:
        return "the attention weights stayed as they were"
    shares = []
    for topic, members in view.groups(changed).items():
        old = float(weights[members].sum())
        new = float(new_weights[members].sum())
        shares.append((old - new, topic or "the rest", percent(old, 1), percent(new, 1)))
    shares.sort(key=lambda share: share[0])  # the largest gain first
    parts: list[str] = []
    for _, topic, old_share, new_share in shares:
        share = new_share if parts else f"has {new_share} of the attention"
        comparison = "as before" if old_share == new_share else f"instead of {old_share}"
        parts.append(f"{topic} {share} {comparison}")
    moved = f"no weight moved by more than {number(float(moves.max()))}"
    return f"{listed(parts)}; {moved}" if len(parts) > 1 else moved


def _entries(n: int) -> str:
    return count(int(n), "entry", "entries")


def _the(n: int, kind: str) -> str:
    """Name a group of entries: the 56 A entries."""
    words = f"{kind} {'entry' if n == 1 else 'entries'}".strip()
    return f"the {'one' if n == 1 else n} {words}"


_DESCRIBE: Mapping[StepKind, Callable[[TurnView, Step], str]] = {
    "value": _describe_value,
    "change": _describe_change,
    "rate": _describe_rate,
    "protect": _describe_protection,
    "evict": _describe_eviction,
    "attention": _describe_attention,
}


# ------------------------------------------------------------------------------- the numbers


def _numbers(view: TurnView, step: Step) -> tuple[Pairs, Pairs]:
    """Return the quantities that a step reads, and those that it writes."""
    label = view.policy.quantity_name
    old_only = step.kind in ("change", "rate") and not step.includes_new
    took_part = ~view.new if old_only else np.ones_like(view.new)
    inputs = []
    # A rate changes row states, so it also reads what it writes.
    names = (*step.reads, *step.writes) if step.kind == "rate" else step.reads
    for name in names:
        if name in step.writes:
            inputs += _described(view, f"{label(name)} before", view.before(name), took_part)
        else:
            inputs += _described(view, label(name), view.quantity(name), took_part)
    outputs = []
    for name in step.writes:
        outputs += _described(view, label(name), view.quantity(name), took_part)
    return tuple(inputs), tuple(outputs)


def _described(
    view: TurnView, label: str, value: Floats | float | None, chosen: Bools
) -> list[tuple[str, str]]:
    """Return label and text: a number, or mean and range, by topic if there are few."""
    if value is None:
        return []
    if isinstance(value, float):
        return [(label, number(value))] if np.isfinite(value) else []
    chosen = chosen & np.isfinite(value)
    groups = view.groups(chosen)
    # Many topics would fill the table, and one says nothing beside the whole.
    if not 1 < len(groups) <= NAMED_GROUPS:
        return [(label, _mean_and_range(value[chosen]))] if chosen.any() else []
    pairs = []
    for topic, members in groups.items():
        name = f"{label}, {members.sum()} {topic or 'other'}"
        pairs.append((name, _mean_and_range(value[members])))
    return pairs


def _mean_and_range(values: Floats) -> str:
    mean = number(float(values.mean(dtype=float)))
    low = number(float(values.min()))
    high = number(float(values.max()))
    return low if low == high else f"{mean} ({low} to {high})"
