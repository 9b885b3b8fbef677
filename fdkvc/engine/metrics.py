"""Metrics of a cache: retention, diversity, alignment, adaptation, memory.

A metric is measured at the end of each turn, after insertion and eviction. A series has one number
for each row and turn (B, T), NaN in turns beyond a row's end.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from fdkvc.core.attention import Bools, Floats, cosine
from fdkvc.core.dialogs import Bits, DialogBatch, topic_bit
from fdkvc.core.extensions import by_key
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import decimal, ranged, signed, uncapitalized
from fdkvc.engine.evidence import AGES, OLD, Demands, Evidence
from fdkvc.engine.trace import Trace

LATE_TURNS = 3
"""Number of last turns that the "late" metrics average over (the paper's evaluation metrics)."""

MARGIN_OF_SHARES, MARGIN_OF_NATS = 0.05, 0.02
"""Differences of a share, and in nats per token, that do not matter to users of a model."""

ADAPTED = 0.8
"""Retention of the new topic at which a cache has adapted (Table 2)."""


def _kept_bits(trace: Trace, dialogs: DialogBatch) -> Bits:
    """Topics of every kept entry (B, T, budget); no bits in empty slots."""
    # Index −1, the empty slot, finds no bits at the end of the row before.
    padded = np.pad(dialogs.topic_bits, ((0, 0), (0, 1)))
    pairs = zip(padded, trace.kept_tokens, strict=True)
    return np.stack([bits.take(tokens) for bits, tokens in pairs])


def _in_turns(series: Floats, trace: Trace, dialogs: DialogBatch) -> Floats:
    """Replace the turns beyond each row's end by NaN."""
    return np.where(dialogs.in_turns[:, trace.first_turn :], series, np.nan)


def retention(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of the cached entries with the current topic (B, T), in [0, 1]."""
    current = dialogs.current[:, trace.first_turn :]
    # By label. The paper's rule, a cosine above 0.3, finds the same at its noise, but at a noise of
    # 0.3 only 57 % of a topic's own tokens.
    of_topic = (_kept_bits(trace, dialogs) & topic_bit(current)[:, :, None]) != 0
    cached = np.maximum((trace.kept_tokens >= 0).sum(axis=2), 1)
    share = (of_topic.sum(axis=2) / cached).astype(np.float32)
    return _in_turns(np.where(current >= 0, share, np.nan), trace, dialogs)


def diversity(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of all the dialog's topics with at least one cached entry (B, T), in [0, 1]."""
    cached_bits = np.bitwise_or.reduce(_kept_bits(trace, dialogs), axis=2)
    cached_topics = np.bitwise_count(cached_bits)
    topics = np.where(dialogs.topic_counts > 0, dialogs.topic_counts, np.nan)
    share = (cached_topics / topics[:, None]).astype(np.float32)
    return _in_turns(share, trace, dialogs)


def alignment(trace: Trace, dialogs: DialogBatch, projection: str = "value") -> Floats:
    """Cosine of the context output with the projected current topic (B, T), in [−1, 1].

    `projection` is the matrix that projects the topic, ``value``, ``key`` or ``query``. The output
    is a mean of values, so only the first compares vectors of one space; the others are cosines of
    unrelated vectors. Without known topic directions a topic is the mean of its tokens, and only
    ``value`` gives numbers: the mean of their values.
    """
    if dialogs.topics is not None and dialogs.projections is not None:
        projected = dialogs.topics @ dialogs.projection(projection)
    elif projection == "value" and dialogs.topic_names:
        projected = _topic_values(dialogs)
    else:
        return np.full(trace.kept_tokens.shape[:2], np.nan, np.float32)
    current = dialogs.current[:, trace.first_turn :]
    # `maximum`: turns without a topic read the first one, and become NaN below.
    target = np.take_along_axis(projected, np.maximum(current, 0)[:, :, None], axis=1)
    series = cosine(trace.output, target)
    return _in_turns(np.where(current >= 0, series, np.nan), trace, dialogs)


def _topic_values(dialogs: DialogBatch) -> Floats:
    """Mean value of the tokens of each topic (B, K, h); zero for a topic without any."""
    topic = np.arange(len(dialogs.topic_names), dtype=np.uint32)[:, None]
    of_topic = (dialogs.topic_bits[:, None] >> topic & 1).astype(np.float32)  # (B, K, N)
    count = np.maximum(of_topic.sum(axis=2, keepdims=True), 1)
    return np.asarray(of_topic @ dialogs.values / count)


def attention_loss(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of the full cache's attention that the kept entries miss (B, T), in [0, 1].

    After *cold-compress* (Answer.AI 2024). The full cache holds every token so far; its attention
    is that of the turn's mean query. NaN in turns without tokens.
    """
    full = dialogs.full_attention[:, trace.first_turn :]
    attention = np.take_along_axis(full, np.maximum(trace.kept_tokens, 0), axis=2)
    missed = 1 - np.where(trace.kept_tokens >= 0, attention, 0).sum(axis=2)
    has_tokens = (np.diff(dialogs.bounds) > 0)[:, trace.first_turn :]
    # Rounding may leave the sum of all attention just above 1.
    series = np.where(has_tokens, np.clip(missed, 0, 1), np.nan)
    return _in_turns(series, trace, dialogs)


def output_error(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Distance of the context output from the full cache's, as a share of its length (B, T)."""
    full = dialogs.full_output[:, trace.first_turn :]
    distance = np.linalg.norm(trace.output - full, axis=-1)
    length = np.linalg.norm(full, axis=-1)
    share = distance / np.where(length > 0, length, np.nan)
    return _in_turns(share.astype(np.float32), trace, dialogs)


def stored_share(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Entries in the cache as a share of all tokens so far (B, T)."""
    entries = (trace.kept_tokens >= 0).sum(axis=2)
    tokens = dialogs.bounds[:, 1:] - dialogs.bounds[:, :1]
    share = entries / np.maximum(tokens[:, trace.first_turn :], 1)
    return _in_turns(share.astype(np.float32), trace, dialogs)


def return_recall(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of a topic's earlier tokens still cached when it returns (B, T), in [0, 1].

    NaN in turns in which no earlier topic returns.
    """
    rows = np.arange(dialogs.rows)[:, None]
    series = np.full(trace.kept_tokens.shape[:2], np.nan, np.float32)
    for index, turn in enumerate(range(trace.first_turn, dialogs.turns)):
        # 1. The topic returns if an earlier turn had it, but not the previous one (B,).
        topic = dialogs.current[:, turn]
        had_topic = dialogs.current[:, :turn] == topic[:, None]
        returns = (topic >= 0) & dialogs.in_turns[:, turn]
        # A slice, since turn 0 has no turn before it.
        returns &= had_topic.any(axis=1) & ~had_topic[:, -1:].any(axis=1)
        # 2. Its tokens of earlier turns (B, N), and how many of them are cached.
        earlier = (dialogs.topic_bits & topic_bit(topic)[:, None]) != 0
        earlier &= dialogs.born < turn
        token = trace.kept_tokens[:, index]
        count = earlier.sum(axis=1)
        cached = (earlier[rows, token] & (token >= 0)).sum(axis=1)
        share = cached / np.maximum(count, 1)
        series[:, index] = np.where(returns & (count > 0), share, np.nan)
    return series


Need = Literal["dialogs", "evidence", "answers"]


@dataclass(frozen=True)
class Metric:
    """A metric and its properties."""

    key: str
    """Its name in options and files."""
    label: str
    """Its name on screen."""
    help: str
    """What it measures, in a sentence."""
    measure: Callable[..., Any]
    """Takes a trace and its dialogs, and returns a series (B, T); or takes `Evidence` and returns a
    dialog's number; or takes the scores of a model's answers by key, and returns those of this
    metric (n,)."""
    needs: Need = "dialogs"
    """What is measured: dialogs of vectors, evidence in a recording, or answers of a model."""
    optional: bool = False
    """Whether it is measured only on request."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """The range of its axis."""
    unit: str = "%"
    """Values in % are stored as shares in [0, 1]."""
    digits: int = 1
    """Decimals of a figure."""
    all_turns: bool = False
    """Whether a dialog's number is the mean of all turns, not of the late ones."""
    lower_is_better: bool = False
    """Whether the best mean is the lowest."""
    turn_label: str = ""
    """Its name beside a turn's figure, if that says more."""
    margin: float = 0.0
    """Two means are equivalent if they differ significantly less than this; 0 states no margin."""

    @property
    def name(self) -> str:
        """The name of a dialog's number in tables and files, such as late_retention."""
        return f"late_{self.key}" if self.needs == "dialogs" else self.key

    @property
    def title(self) -> str:
        """The title of a dialog's number, such as Late retention."""
        return self.label if self.all_turns else f"Late {uncapitalized(self.label)}"

    @property
    def percent(self) -> bool:
        """Whether its figures are percentages."""
        return self.unit == "%"

    @property
    def scale(self) -> int:
        """What a value is multiplied by in a figure."""
        return 100 if self.percent else 1

    def heading(self, name: str = "") -> str:
        """Return a name, by default the title, with the unit of its figures.

        Examples
        --------
        >>> METRICS["retention"].heading(), METRICS["alignment"].heading("alignment")
        ('Late retention, %', 'alignment')
        """
        return ", ".join(filter(None, (name or self.title, self.unit)))

    def figure(
        self,
        mean: float,
        low: float = math.nan,
        high: float = math.nan,
        *,
        signs: bool = False,
    ) -> str:
        """Write a value, or a mean with its interval, without the unit; `signs` for a difference.

        Examples
        --------
        >>> METRICS["retention"].figure(0.7512, 0.7, 0.8), METRICS["nats"].figure(0.25)
        ('75.1 (70.0 to 80.0)', '0.250')
        """
        scale = self.scale
        write = signed if signs else decimal
        return ranged(scale * mean, scale * low, scale * high, self.digits, write)

    def with_unit(self, value: float) -> str:
        """Write a value with its unit, a dash for a missing one.

        Examples
        --------
        >>> METRICS["retention"].with_unit(0.7512), METRICS["alignment"].with_unit(0.5)
        ('75.1 %', '0.500')
        """
        return "–" if math.isnan(value) else f"{self.figure(value)} {self.unit}".rstrip()

    def late(self, trace: Trace, dialogs: DialogBatch) -> Floats:
        """Return the mean over each row's last turns, or over all of them (B,)."""
        window = trace if self.all_turns else trace.since(first_late_turn(dialogs))
        return self.mean(self.measure(window, dialogs), dialogs)

    def mean(self, series: Floats, dialogs: DialogBatch) -> Floats:
        """Return the mean of a series (B, T) as `late` does of a trace (B,)."""
        return late(series, dialogs, dialogs.turns if self.all_turns else LATE_TURNS)


def _alignment(space: str, label: str, optional: bool) -> Metric:
    """Return the metric of alignment with the topic projected by one of the matrices."""
    return Metric(
        "alignment" if space == "value" else f"alignment_{space}",
        label,
        "How closely what attention reads from the cache points to the current topic: 1 in the "
        f"same direction, 0 unrelated (cosine with the topic projected by the {space} matrix).",
        partial(alignment, projection=space),
        optional=optional,
        bounds=(-1.0, 1.0),
        unit="",
        digits=3,
    )


_cost = partial(Metric, optional=True, all_turns=True, lower_is_better=True)
_of_evidence = partial(Metric, needs="evidence", all_turns=True)


def _recall(key: str, label: str, help: str, demands: Demands) -> Metric:
    """Return the recall of some demands."""
    measure = operator.methodcaller("recall", demands)
    return _of_evidence(key, label, help, measure, margin=MARGIN_OF_SHARES)


def _of_answers(key: str, label: str, help: str, unit: str = "nats") -> Metric:
    """Return a metric of a model's answers: a share, or nats, where lower is better."""
    scores = operator.itemgetter(key)
    share = unit == "%"
    return Metric(
        key,
        label,
        help,
        scores,
        needs="answers",
        unit=unit,
        digits=1 if share else 3,
        all_turns=True,
        lower_is_better=not share,
        margin=MARGIN_OF_SHARES if share else MARGIN_OF_NATS,
    )


_right = partial(_of_answers, unit="%")
_LIKELIHOOD = "Negative log-likelihood per token"
_NAMES = {"recent": "Recent", "middle": "Older", "old": "Old"}
_LAST = {age: f"last mentioned {turns} before the call" for age, (turns, _) in AGES.items()}

METRICS: Mapping[str, Metric] = by_key(
    _alignment("value", "Alignment", optional=False),
    Metric(
        "retention",
        "Retention",
        "Share of the cached entries that belong to the current topic.",
        retention,
        turn_label="On topic (retention)",
    ),
    Metric(
        "diversity",
        "Diversity",
        "Share of the dialog's topics with at least one entry in the cache.",
        diversity,
    ),
    Metric(
        "attention_loss",
        "Attention loss",
        "Share of the full cache's attention that goes to entries no longer cached.",
        attention_loss,
        optional=True,
        lower_is_better=True,
    ),
    Metric(
        "output_error",
        "Output error",
        "Distance of the attention output from the full cache's output, relative to its norm.",
        output_error,
        optional=True,
        lower_is_better=True,
    ),
    Metric(
        "return_recall",
        "Return recall",
        "When a topic returns, the average share of its earlier tokens that are still cached.",
        return_recall,
        optional=True,
        all_turns=True,
    ),
    _cost(
        "memory",
        "Memory",
        "Entries in the cache as a share of all tokens so far.",
        stored_share,
    ),
    _alignment("key", "Alignment, key matrix", optional=True),
    _alignment("query", "Alignment, query matrix", optional=True),
    _recall(
        "call_recall",
        "Call-argument recall",
        "Average share of a call's arguments that are fully cached when the call is made.",
        Demands("call"),
    ),
    *(
        _recall(
            f"{age}_call_recall",
            f"Call-argument recall, {old} old",
            f"Recall of arguments {_LAST[age]}.",
            Demands("call", *limits),
        )
        for age, (old, limits) in AGES.items()
    ),
    _recall(
        "state_recall",
        "State-value recall",
        "Average share of the dialogue state's values that are still fully cached after a turn.",
        Demands("state"),
    ),
    _recall(
        "old_state_recall",
        f"State-value recall, more than {OLD} turns old",
        f"Recall of values last mentioned more than {OLD} turns before.",
        Demands("state", OLD),
    ),
    _of_evidence(
        "token_age",
        "Mean token age",
        "Average age of a cached token in turns, over all cached tokens and turns.",
        Evidence.token_age,
        unit="",
        digits=2,
    ),
    _of_evidence(
        "peak_entries",
        "Peak entries",
        "Most entries that the cache held at once, just before a turn's eviction: a turn is "
        "read as a whole.",
        Evidence.peak_entries,
        optional=True,
        unit="",
        digits=2,
        lower_is_better=True,
    ),
    _of_evidence(
        "tokens_reread",
        "Tokens read again",
        "Tokens read again over a dialog, since text before them has changed; none where what "
        "stays keeps its keys and values.",
        Evidence.tokens_reread,
        optional=True,
        unit="",
        digits=0,
        lower_is_better=True,
    ),
    _of_evidence(
        "turns_refused",
        "Turns refused",
        "Share of turns after which services would refuse what stays: it has no user's "
        "message, or a result without its call.",
        Evidence.turns_refused,
        optional=True,
        lower_is_better=True,
    ),
    _right(
        "values_right",
        "Values right",
        "Share of call argument values that are written correctly, each given the true text "
        "before it.",
    ),
    _right(
        "values_right_of_full",
        "Values right, of those right with the full cache",
        "Values that are still right, as a share of those that the full cache gets right.",
    ),
    *(
        _right(
            f"values_right_of_full_{age}",
            f"{name} values right, of those right with the full cache",
            f"Of values {_LAST[age]}.",
        )
        for age, name in _NAMES.items()
    ),
    *(
        _right(
            f"values_right_of_full_{kind}",
            f"Values {origin} that are right, of those right with the full cache",
            f"Of values last {origin}.",
        )
        for kind, origin in GIVEN_BY.items()
    ),
    _of_answers("nats", "All tokens", f"{_LIKELIHOOD} of the dialog's text."),
    _of_answers(
        "nats_arguments", "Argument values", f"{_LIKELIHOOD} of the argument values of calls."
    ),
    *(
        _of_answers(f"nats_{age}", f"{name} values", f"{_LIKELIHOOD} of values {_LAST[age]}.")
        for age, name in _NAMES.items()
    ),
    _of_answers(
        "kl", "KL", "Kullback-Leibler divergence from the full cache's prediction, per token."
    ),
    _of_answers("kl_p99", "KL, 99th percentile", "KL that 1 % of a dialog's tokens exceed."),
    _right(
        "same_best",
        "Same top token",
        "Share of tokens whose likeliest prediction is the full cache's.",
    ),
    _right(
        "calls_exact",
        "Calls exact",
        "Share of calls written word for word, given the dialog so far.",
    ),
    _right("arguments_right", "Arguments right", "Share of call arguments that are right."),
    _right(
        "calls_exact_of_full",
        "Calls exact, of those exact with the full cache",
        "Calls that are still exact, as a share of those that the full cache writes exactly.",
    ),
    _right(
        "arguments_right_of_full",
        "Arguments right, of those right with the full cache",
        "Arguments that are still right, as a share of those that the full cache gets right.",
    ),
)
"""Every metric, in display order; a new one is one more entry here."""

PROJECTED_ALIGNMENTS = ("alignment_key", "alignment_query")
"""The alignments of unrelated vectors; see `alignment`."""


def metrics_of(*needs: Need, optional: bool | None = None) -> dict[str, Metric]:
    """Return the metrics of dialogs, or with these needs; only (not) `optional` ones, if given."""
    chosen = needs or ("dialogs",)
    metrics = {key: metric for key, metric in METRICS.items() if metric.needs in chosen}
    if optional is None:
        return metrics
    return {key: metric for key, metric in metrics.items() if metric.optional == optional}


def default_metrics() -> tuple[str, ...]:
    """Return the keys of the metrics of dialogs that are always measured."""
    return tuple(metrics_of(optional=False))


def metric_named(key: str, *needs: Need) -> Metric:
    """Look up a metric by its key, among those of dialogs or those with one of these needs.

    Raises a ValueError if there is none.
    """
    metrics = metrics_of(*needs)
    if key not in metrics:
        raise ValueError(f"metric {key!r} is unknown: choose from {', '.join(metrics)}")
    return metrics[key]


def late_metric(name: str) -> Metric:
    """Return the metric by its name in tables, such as late_retention or call_recall."""
    return METRICS[name.removeprefix("late_")]


def first_late_turn(dialogs: DialogBatch) -> int:
    """Return the first turn that is late in any row."""
    return max(int(dialogs.turn_counts.min()) - LATE_TURNS, 0)


def late(series: Floats, dialogs: DialogBatch, turns: int = LATE_TURNS) -> Floats:
    """Mean over the last `turns` of each row (B,), or all if it has fewer; NaNs do not count.

    The series (B, T) is over all turns of `dialogs`, or the last of them.
    """
    turn = np.arange(dialogs.turns - series.shape[1], dialogs.turns)
    last = dialogs.turn_counts[:, None]
    chosen = (turn >= last - turns) & (turn < last) & np.isfinite(series)
    # Double precision, so that the order of the sum, which depends on padding, does not show.
    sums = np.where(chosen, series.astype(np.float64), 0).sum(axis=1)
    counts = chosen.sum(axis=1)
    means = sums / np.maximum(counts, 1)
    return np.where(counts > 0, means, np.nan).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The time of each row to adapt to its first change of topic."""

    turns: Floats
    """Shape (B,). Turns of the new topic up to and including the first with enough retention, or
    all of them if there is none; NaN if the record has no change of topic."""
    never: Bools
    """Shape (B,). Whether no turn of the new topic has enough retention."""


def adaptation(series: Floats, dialogs: DialogBatch) -> Adaptation:
    """Count the turns from the first change of topic to a retention of 80 % (Table 2).

    `series` is the retention of all turns, or of the last of them (B, T).
    """
    # Turns before the series are NaN, which never counts as adapted.
    begins = dialogs.turns - series.shape[1]
    series = np.pad(series, [(0, 0), (begins, 0)], constant_values=np.nan)
    current = dialogs.current
    in_turns = dialogs.in_turns
    turn = np.arange(dialogs.turns)
    # 1. The first turn whose topic is not the first one (B, 1), or T.
    first_known = (current >= 0).argmax(axis=1)
    first = np.take_along_axis(current, first_known[:, None], axis=1)
    differs = (current != first) & in_turns & (current >= 0)
    change = np.where(differs.any(axis=1), differs.argmax(axis=1), dialogs.turns)
    change = change[:, None]
    topic = np.take_along_axis(current, np.minimum(change, dialogs.turns - 1), axis=1)
    # 2. The new topic ends where the topic changes again, or the row ends.
    is_past = (turn >= change) & ((current != topic) | ~in_turns)
    end = np.where(is_past.any(axis=1), is_past.argmax(axis=1), dialogs.turns)
    end = end[:, None]
    # 3. The turns from the change to the first with enough retention, or to the end.
    adapted = (turn >= change) & (turn < end) & (series >= ADAPTED)
    never = ~adapted.any(axis=1)
    stop = np.where(never, end[:, 0], adapted.argmax(axis=1) + 1)
    count = stop - change[:, 0]
    changes = (change[:, 0] < dialogs.turns) & (change[:, 0] >= begins)
    turns = np.where(changes, count, np.nan).astype(np.float32)
    return Adaptation(turns, never & changes)


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of a cache."""

    keys: int
    """Keys of the held entries."""
    values: int
    """Values of the held entries."""
    scores: int
    """The policy's channels of the held entries."""
    full_cache: int
    """Keys and values of all tokens so far."""


def cache_bytes(trace: Trace, dialogs: DialogBatch, turn: int | None = None) -> CacheBytes:
    """Count the bytes of the first row's cache after a turn, by default of its largest cache."""
    turns = dialogs.turn_counts[0] if turn is None else turn + 1
    tokens = int(dialogs.bounds[0, turns])
    vector = dialogs.keys.shape[-1] * dialogs.keys.itemsize
    number = np.dtype(np.float32).itemsize
    held = (trace.kept_tokens[0] >= 0).sum(axis=1)
    entries = int(held.max() if turn is None else held[turn - trace.first_turn])
    return CacheBytes(
        keys=entries * vector,
        values=entries * vector,
        scores=entries * len(trace.policy.channels) * number,
        full_cache=2 * tokens * vector,
    )
