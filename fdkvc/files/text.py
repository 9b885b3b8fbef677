"""Results as plain text, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fdkvc.dialogs import DialogBatch
from fdkvc.experiments.answers import MEASURES
from fdkvc.experiments.arguments import COUNTED, source_rows
from fdkvc.experiments.benchmark import ADAPTATION, Benchmark, Latency, Results, late_metrics
from fdkvc.experiments.known_services import GROUPS, known_sentence
from fdkvc.experiments.model_shape import ModelShape
from fdkvc.experiments.plan import budget_columns
from fdkvc.experiments.proxies import AnswersTables
from fdkvc.experiments.replay import Replay, not_computed, replay_summary
from fdkvc.experiments.statistics import Paired, over_clusters
from fdkvc.experiments.study import Study
from fdkvc.experiments.sweep import Sweep
from fdkvc.explain.tables import turns_table
from fdkvc.paper.tables import BASELINE
from fdkvc.replication import tables
from fdkvc.replication.judge import PERCENTILES
from fdkvc.run.metrics import late_metric, metric_named
from fdkvc.run.trace import Trace
from fdkvc.words import count, decimal, plus_minus, ranged, signed

MAX_LINE = 100
"""Characters of a line of a trace."""


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, *, grouped: bool = False
) -> str:
    """Align cells in columns for a terminal, the first `left` of them to the left.

    If `grouped`, rows with the same first cell form a block that shows it once.

    Examples
    --------
    >>> print(text_table(["policy", "turns"], [["fifo", "2"], ["h2o", "16"]]))
    policy  turns
    fifo        2
    h2o        16
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    lines = [line(header)]
    group = None
    for row in rows:
        if grouped and row[0] == group:
            row = ["", *row[1:]]
        elif grouped:
            group = row[0]
            lines.append("")
        lines.append(line(row))
    return "\n".join(lines)


def benchmark_text(results: Results, latencies: Iterable[Latency], baseline: str = BASELINE) -> str:
    """Return the tables of a benchmark, with published figures."""
    study = Study(results, latencies=tuple(latencies))
    parts = [_summary_text(results), _adaptation_text(results)]
    parts += [_paired_text(results, baseline), _latency_text(study)]
    return "\n\n\n".join(part for part in parts if part)


def ablation_text(results: Results, parameter: str) -> str:
    """Return the table of an ablation, with published figures."""
    benchmark = results.benchmark
    table = tables.ablation_table(results, parameter)
    cells = _measured_beside_published(table, ["value"], benchmark)
    rows = [[f"{value:g}", *texts] for (value,), texts in cells.items()]
    header = [parameter, *_metric_header(benchmark)]
    return (
        f"{benchmark.scenarios[0].label}: means over the last turns of "
        f"{count(benchmark.dialogs, 'dialog')}, ± half of the 95 % interval\n\n"
        f"{text_table(header, rows)}"
    )


def sweep_text(sweep: Sweep, results: Results) -> str:
    """Return the table of a sweep."""
    table = tables.sweep_table(sweep, results)
    figures = table[["mean", "ci_low", "ci_high"]].map(decimal)
    rows = table[["setting", "metric"]].join(figures).to_numpy().tolist()
    return text_table(["setting", "metric", "mean", "from", "to"], rows, 2, grouped=True)


INTERVAL = ("mean", "ci_low", "ci_high")

OF_HEADS = {"each": "", "together": ", heads together", "kv": ", by KV head"}
"""Suffixes of a policy's name, by which heads decide together."""


def replay_text(replayed: pd.DataFrame) -> str:
    """Return the means of a replay, a column per budget."""
    table = replay_summary(replayed)
    cells = []
    for metric in dict.fromkeys(replayed.metric):
        scale, digits, unit = (100, 1, " %") if late_metric(metric).percent else (1, 2, "")
        for row in table[table.metric == metric].to_dict("records"):
            mean, low, high = (scale * row[name] for name in INTERVAL)
            words = ranged(mean, low, high, digits)
            name = f"{row['policy']}{OF_HEADS[row['heads']]}"
            over = f"{metric}{unit}, {count(int(row['n']), 'dialog')}"
            cells.append((over, name, row["budget"], words))
    parts = [
        "Means over dialogs by budget, with the 95 % interval, which is\n"
        f"{over_clusters(int(replayed.services.nunique()))}",
        _columns_text(["metric", "policy"], table.budget.unique().tolist(), cells),
        not_computed(replayed),
    ]
    return "\n\n".join(filter(None, parts))


def forgotten_text(by_source: pd.DataFrame, lost: pd.DataFrame, settings: Replay) -> str:
    """Return the recall by source and age at the middle budget, and the oldest that are lost.

    The list is that of the last policy.
    """
    budget = sorted(settings.budgets)[len(settings.budgets) // 2]
    mode, policies = settings.heads[0], [each.name for each in settings.policies]
    header = ["source", "mentioned", *policies, *COUNTED]
    parts = [
        f"Call-argument recall % by source and age at budget {budget}, with 95 % intervals",
        text_table(header, source_rows(by_source, settings, budget), 2, grouped=True),
    ]
    last = policies[-1]
    gone = lost[(lost.policy == last) & (lost.budget == budget) & (lost.heads == mode)]
    if len(gone):
        parts += [
            f"What {last} forgot at budget {budget}: {count(len(gone), 'argument')}, oldest "
            "mention first",
            text_table(
                ["dialog", "call", "argument", "value", "in turn", "mentioned", "evicted"],
                [
                    [
                        *(row["dialog"], row["call"], row["slot"], row["value"][:40]),
                        *(str(row[name]) for name in ("turn", "mentioned", "lost")),
                    ]
                    for row in gone.head(10).to_dict("records")
                ],
                4,
            ),
        ]
    return "\n\n".join(parts)


def plan_text(smallest: pd.DataFrame, shape: ModelShape) -> str:
    """Return the smallest budget of each policy for each share of the arguments, with its bytes."""
    several = smallest.heads.nunique() > 1
    columns = budget_columns(smallest, lambda policy, heads: policy + OF_HEADS[heads] * several)
    table = text_table([*columns], [*zip(*columns.values(), strict=True)])
    return f"Smallest budget, in entries and in bytes of {shape.name}\n\n{table}"


def answers_text(found: AnswersTables) -> str:
    """Return the loss of answers, a column per budget, then the proxies."""
    table = found.summary
    same = {
        (row["metric"], row["policy"], row["budget"])
        for row in found.paired.to_dict("records")
        if row["significant"] is False
    }
    budgets, cells = table.budget.unique().tolist(), []
    for metric, measure in MEASURES.items():
        scale, digits, unit = (100, 1, " %") if measure.unit == "%" else (1, 3, "")
        for row in table[table.metric == metric].to_dict("records"):
            mean, low, high = (scale * row[name] for name in INTERVAL)
            words = ranged(mean, low, high, digits)
            words += " =" if (metric, row["policy"], row["budget"]) in same else "  "
            cells.append((f"{metric}{unit}", row["policy"], row["budget"], words))
    dialogs = count(int(table.n.max()), "dialog")
    text = (
        f"Means over {dialogs} by budget, with the 95 % interval, which is "
        f"{over_clusters(int(table.services.max()))};\n= where it is indistinguishable from "
        f"{found.baseline}\n\n"
        f"{_columns_text(['measure', 'policy'], budgets, cells)}"
    )
    if known := known_sentence(found.known):
        text = f"{known}\n\n{text}"
    parts = [text, _by_services_text(found.by_services, budgets), _proxies_text(found.proxies)]
    return "\n\n\n".join(filter(None, parts))


def _by_services_text(table: pd.DataFrame, budgets: Sequence[int]) -> str:
    """Return the values that are right for each group of dialogs, if there are several."""
    table = table[table.metric == "values_right"]
    if table.known.nunique() < 2:
        return ""
    cells = []
    for row in table.to_dict("records"):
        mean, low, high = (100 * row[name] for name in INTERVAL)
        words = ranged(mean, low, high, 1)
        cells.append((GROUPS[row["known"]], row["policy"], row["budget"], words))
    return (
        "values_right % by whether the model was trained on the dialogs' services\n\n"
        f"{_columns_text(['dialogs with', 'policy'], budgets, cells)}"
    )


def _columns_text(
    header: Sequence[str], columns: Sequence[Any], cells: Sequence[tuple[str, str, Any, str]]
) -> str:
    """Return a table of cells (row, row within it, column, text)."""
    rows: dict[tuple[str, str], dict[Any, str]] = {}
    for group, name, column, text in cells:
        rows.setdefault((group, name), {})[column] = text
    texts = [[*names, *(row.get(column, "") for column in columns)] for names, row in rows.items()]
    return text_table([*header, *map(str, columns)], texts, 2, grouped=True)


def _proxies_text(table: pd.DataFrame) -> str:
    if table.empty:
        return ""
    cells = []
    for row in table.sort_values("damage", kind="stable").to_dict("records"):
        words = ranged(row["rho"], row["ci_low"], row["ci_high"], 2, signed)
        words += by_policies(row["policies_low"], row["policies_high"])
        cells.append((row["damage"], row["proxy"], row["over"], words))
    return (
        "Rank correlation of proxies from a replay with the loss of answers, over "
        f"{count(int(table.policies.max()), 'policy', 'policies')}:\n"
        "(95 % interval over dialogs) [over policies, if there are enough]\n\n"
        f"{_columns_text(['loss of', 'proxy'], table.over.unique().tolist(), cells)}"
    )


def by_policies(low: float, high: float) -> str:
    """Return the interval of a correlation over policies, "" if there is none.

    Examples
    --------
    >>> by_policies(-0.981, -0.82), by_policies(math.nan, math.nan)
    (' [−0.98 to −0.82]', '')
    """
    return "" if math.isnan(low) else f" [{signed(low, 2)} to {signed(high, 2)}]"


def cost_text(cost: pd.DataFrame) -> str:
    """Return the cost of a model's caches."""
    rows = [
        [
            row["policy"],
            str(row["budget"]),
            f"{row['bytes']:,.0f}",
            f"{row['bytes_ratio']:.2f}",
            *(
                text
                for act in ("read", "written")
                for text in (f"{row[f'{act}_per_second']:.1f}", f"{row[f'{act}_ratio']:.2f}")
            ),
        ]
        for row in cost.to_dict("records")
    ]
    header = ["policy", "budget", "most bytes", "×"]
    header += ["read per second", "×", "written per second", "×"]
    return (
        "Cost of the caches in one dialog: bytes, and tokens per second with evictions; × relative "
        f"to the cache without eviction\n\n{text_table(header, rows, 1)}"
    )


def trace_text(trace: Trace, dialogs: DialogBatch, requested: Iterable[str] = ()) -> str:
    """Return the turns of a trace; the last row states are left out where lines get too long."""
    table = turns_table(trace, dialogs, metrics=requested).rename(columns={"latency_ms": "ms"})
    frame = table.dropna(axis="columns", how="all")
    states = [name for name in frame if name in trace.state]
    while True:
        rows = [[_short(value) for value in row.values()] for row in frame.to_dict("records")]
        text = text_table([str(name) for name in frame], rows, left=0)
        if text.index("\n") <= MAX_LINE or not states:
            return text
        frame = frame.drop(columns=states.pop())


def _summary_text(results: Results) -> str:
    table = tables.summary_table(results)
    if table.empty:
        return ""
    benchmark = results.benchmark
    cells = _measured_beside_published(table, ["scenario", "policy"], benchmark)
    rows = [[*names, *texts] for names, texts in cells.items()]
    header = ["scenario", "policy", *_metric_header(benchmark)]
    text = (
        f"Means over the last turns of {count(benchmark.dialogs, 'dialog')} per scenario, "
        f"± half of the 95 % interval\n\n{text_table(header, rows, 2, grouped=True)}"
    )
    if table.published[table.metric == "late_alignment"].notna().any():
        text += (
            "\n\nAlignment is with the topic projected by W_V. The published alignments are as "
            "small as\nthose of unrelated vectors, and the paper's t-tests find no difference "
            "(Section 5.6)."
        )
    return text


def _metric_header(benchmark: Benchmark) -> list[str]:
    return [word for key in benchmark.metrics for word in (_metric_name(key), "published")]


def _metric_name(key: str) -> str:
    metric = metric_named(key)
    return f"{metric.label.lower()}{' %' if metric.percent else ''}"


def _measured_beside_published(
    table: pd.DataFrame, by: Sequence[str], benchmark: Benchmark
) -> dict[tuple[Any, ...], list[str]]:
    """Return a measured and a published text for each metric, both empty if it is undefined."""
    place = {metric: 2 * at for at, metric in enumerate(late_metrics(benchmark))}
    texts: dict[tuple[Any, ...], list[str]] = {}
    for row in table.to_dict("records"):
        percent = late_metric(row["metric"]).percent
        scale, digits, printed_digits = (100, 1, 1) if percent else (1, 3, 4)  # as printed
        measured = plus_minus(row["mean"], row["ci_high"], scale, digits)
        figure = scale * row["published"]
        printed = "" if math.isnan(figure) else decimal(figure, printed_digits)
        cells = texts.setdefault(tuple(row[name] for name in by), [""] * (2 * len(place)))
        at = place[row["metric"]]
        cells[at : at + 2] = measured, printed
    return texts


def _adaptation_text(results: Results) -> str:
    table = tables.adaptation_table(results)
    if table.empty:
        return ""
    rows = []
    for row in table.to_dict("records"):
        values = results.values(ADAPTATION, row["policy"], "never")
        never = 0 if values is None else int(values.sum())
        cells = [row["policy"]]
        for name, text in at_least(row, row["n"], never).items():
            figure = row[f"published_{name}"]
            cells += [text, "" if math.isnan(figure) else f"{figure:g}"]
        rows.append([*cells, str(never)])
    header = ["policy", "mean", "published", "median", "published", "p90", "published", "never"]
    return (
        "Turns from a change of topic to 80 % retention of the new one, "
        f"{count(results.benchmark.dialogs, 'dialog')}\n\n{text_table(header, rows)}"
    )


def at_least(turns: Mapping[Any, float], n: int, never: int) -> dict[str, str]:
    """Return mean, median and p90 of the turns to adapt as texts.

    A dialog that never adapts counts with its number of turns, so figures that depend on one get
    ``> ``.

    Examples
    --------
    >>> at_least({"mean": 16, "median": 16, "p90": 16}, n=600, never=600)
    {'mean': '> 16.00', 'median': '> 16', 'p90': '> 16'}
    >>> at_least({"mean": 4.5, "median": 4, "p90": 5}, n=600, never=0)
    {'mean': '4.50', 'median': '4', 'p90': '5'}
    """
    first_never = n - never  # its index in ascending order
    mark = {"mean": never > 0}
    mark |= {name: first_never <= math.ceil(at * (n - 1)) for name, at in PERCENTILES.items()}
    words = {"mean": f"{turns['mean']:.2f}"}
    words |= {name: f"{turns[name]:g}" for name in PERCENTILES}
    return {name: f"> {word}" if mark[name] else word for name, word in words.items()}


def _paired_text(results: Results, baseline: str) -> str:
    rows = []
    for scenario, metric, policy, comparison in tables.comparisons(results, baseline):
        key = metric.removeprefix("late_")
        difference = _difference(comparison, metric_named(key).percent)
        rows.append([scenario, _metric_name(key), policy, *difference])
    if not rows:
        return ""
    header = ["scenario", "metric", "policy", "difference", "t", "p"]
    return (
        f"Paired differences from {baseline} over the same dialogs, ± half of the 95 % interval"
        f"\n\n{text_table(header, rows, 3, grouped=True)}"
    )


def _difference(comparison: Paired, percent: bool) -> list[str]:
    scale, digits = (100, 1) if percent else (1, 3)
    mean = signed(scale * comparison.mean, digits)
    match comparison.verdict:
        case "too few":
            return [mean, "", "too few dialogs"]
        case "same" if comparison.mean == 0:
            return ["0", "", "no difference in any dialog"]
        case "same":
            return [mean, "", "the same in every dialog"]
    margin = f"{scale * (comparison.high - comparison.mean):.{digits}f}"
    p = "< 0.001" if comparison.p < 0.001 else f"{comparison.p:.3f}"
    return [f"{mean} ± {margin}", decimal(comparison.t, 1), p]


def _latency_text(study: Study) -> str:
    table = tables.latency_table(study)
    rows = [[_short(cell) for cell in row.values()] for row in table.to_dict("records")]
    header = ["policy", "ms", "times FIFO's", "published ms"]
    return f"Time of a turn of one dialog\n\n{text_table(header, rows)}"


def _short(value: object) -> str:
    """Return a number with a few decimals, "" if it is missing."""
    if isinstance(value, float):
        return "" if math.isnan(value) else decimal(value)
    return "" if value is None else str(value)
