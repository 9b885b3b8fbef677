"""What a run finds: which parts of the paper it reproduces, and on what two runs differ."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

from fdkvc.core.words import count, decimal, listed, sentence
from fdkvc.engine.metrics import PROJECTED_ALIGNMENTS, late_metric
from fdkvc.paper.benchmark import ADAPTATION, Results
from fdkvc.paper.published import DIALOGS
from fdkvc.paper.replication.cells import figure_words, measured_tables
from fdkvc.paper.replication.claims import (
    DEPENDS,
    claim_results,
    measured_words,
)
from fdkvc.paper.replication.facts import BENCHMARK, Fact, facts
from fdkvc.paper.replication.rules import COUNTED, ONE_SIDED, OPEN, REPRODUCED, TWO_SIDED
from fdkvc.paper.study import Study
from fdkvc.runs.grid import Grid

# Where both figures are equal, the rule needs 1.645·s/√n ≤ 1.96·s/√600.
FEWEST_VARYING = round(DIALOGS * (ONE_SIDED / TWO_SIDED) ** 2 / 10) * 10
"""With fewer dialogs, hardly any figure that varies can be reproduced (see `by_equivalence`)."""

_QUANTITIES = {
    "ownership_loss": "ownership loss",
    "learning_rate": "learning rate",
    "highest_score": "limit of scores",
    "same_entries": "w_c = 1",
    "parameters": "number of hyperparameters",
    "threshold_evictions": "threshold τ",
}
"""Subjects of claims that are no metrics of the tables."""

NOT_REPRODUCED = "not reproduced"

CHOICES = (
    "Where the paper leaves a choice open, the one that matches its figures was taken, so these "
    "are partly fitted."
)
"""What limits each figure that comes out."""

UNCHECKED = ["alignment"]
"""Metrics that cannot be checked unless they come out with the value matrix."""

ANY_MATRIX = "The paper does not say which matrix it means, so this cannot be checked."
"""Why that is so."""

SIGNS = {REPRODUCED: "✓", OPEN: "?", NOT_REPRODUCED: "✗"}
UNCHECKED_SIGN = "~"


class Finding(NamedTuple):
    """What a run finds, in words."""

    headline: str
    numbers: tuple[str, ...]
    """A sentence for each kind of figures, and one on the claims."""
    details: Mapping[str, str]
    """By subject."""


def finding(study: Study) -> Finding:
    """Return what a run finds; empty without a verdict.

    Figures are grouped by metric, and a metric counts as what most of its figures are: reproduced,
    open or not reproduced.
    """
    # 1. The figures of each metric, and what most of them are.
    by_metric: dict[str, list[Fact]] = {}
    for fact in facts(study):
        if fact.verdict is not None:
            by_metric.setdefault(_subject(fact.metric, fact.source), []).append(fact)
    if not by_metric:
        return Finding("", (), {})
    groups: dict[str, list[str]] = {REPRODUCED: [], OPEN: [], NOT_REPRODUCED: []}
    for metric, rows in by_metric.items():
        kinds = (row.verdict if row.verdict in groups else NOT_REPRODUCED for row in rows)
        ((most_frequent, _),) = Counter(kinds).most_common(1)
        groups[most_frequent].append(metric)
    # 2. Each group in words.
    claims = claim_results(study)
    clauses = []
    numbers = []
    details = {}
    for kind, metrics in groups.items():
        if metrics:
            rows = [*chain.from_iterable(by_metric[metric] for metric in metrics)]
            name = sentence(listed(metrics))[:-1]
            reproduced = [row.verdict for row in rows].count(REPRODUCED)
            clauses.append(_clause(kind, listed(metrics), reproduced, len(rows)))
            sign = SIGNS[kind]
            remark = CHOICES if kind == REPRODUCED else ""
            words = _counted(rows)
            if kind == NOT_REPRODUCED and metrics == UNCHECKED:
                sign = UNCHECKED_SIGN
                name += ", with the value matrix"
                remark = f"{ANY_MATRIX} {size_of_alignments(study.results)}".rstrip()
            numbers.append(f"{sign} {name}: {_numbers(rows)}. {remark}".rstrip())
            details[name] = words
    # 3. The claims by verdict, and what the failed ones are about.
    counts = Counter[str | None](result.verdict for result in claims)
    counted_verdicts = {
        "hold": counts["holds"],
        "hold without their figure": counts["direction only"],
        "depend on the matrix": counts[DEPENDS],
        "are open": counts[OPEN],
        "do not hold": counts["does not hold"],
        "are not judged": counts[None],
    }
    counted_claims = [
        f"{number} {verdict}" for verdict, number in counted_verdicts.items() if number
    ]
    numbers.append(f"Claims in the text: {listed(counted_claims)}.")
    clauses.append(f"{counts['does not hold']} of {len(claims)} claims do not hold")
    headline = sentence("; ".join(clauses))
    has_open = any(fact.verdict == OPEN for fact in chain(*by_metric.values()))
    dialogs = min(map(study.results.dialogs, study.results.measured))
    if has_open and dialogs < FEWEST_VARYING:
        details["Open figures"] = (
            f"no failure: with {dialogs:,} dialogs few figures that vary between dialogs are "
            f"decided; that takes about {FEWEST_VARYING}."
        )
    failed = Counter(
        _subject(result.claim.measure.metric)
        for result in claims
        if result.verdict == "does not hold"
    )
    subjects = [
        name if number == 1 else f"{name} ({number})" for name, number in failed.items()
    ]
    refuted = sum(result.refuted_by_paper for result in claims)
    if failed:
        details["Claims"] = (
            f"those that do not hold are on {listed(subjects)}; {refuted} of them contradict the "
            "paper's own numbers."
        )
    return Finding(headline, tuple(numbers), details)


def _clause(kind: str, metrics: str, reproduced: int, figures: int) -> str:
    """Say how many figures of some metrics come out, in a few words."""
    if kind == REPRODUCED:
        share = "all" if reproduced == figures else "most"
        return f"{share} figures of {metrics} come out as printed"
    if kind == OPEN:
        return f"most figures of {metrics} are open"
    if metrics == listed(UNCHECKED):
        return f"{metrics} cannot be checked"
    if reproduced:
        return f"most figures of {metrics} do not come out"
    return f"no figure of {metrics} comes out"


def _numbers(rows: Sequence[Fact]) -> str:
    """Count the figures that come out, those of FD-KVC alone, and the others by verdict."""
    verdicts = Counter(row.verdict for row in rows)
    reproduced = verdicts.pop(REPRODUCED, 0)
    words = f"{reproduced or 'none'} of {len(rows)} figures come out"
    remarks = [f"{verdicts[name]} {COUNTED[name or OPEN]}" for name in verdicts]
    fd_kvc = [row.verdict for row in rows if row.policy.startswith("fd-kvc")]
    if reproduced and fd_kvc:
        remarks.insert(0, f"of FD-KVC's own {fd_kvc.count(REPRODUCED)} of {len(fd_kvc)}")
    return f"{words} ({'; '.join(remarks)})" if remarks else words


def _subject(metric: str, source: str = "") -> str:
    if ADAPTATION in (metric, source):
        return ADAPTATION
    return _QUANTITIES.get(metric) or late_metric(metric).label.lower()


def _counted(rows: Sequence[Fact]) -> str:
    """Count the verdicts on figures."""
    constant = sum(row.verdict == REPRODUCED and row.constant for row in rows)
    words = []
    for verdict, number in Counter(row.verdict for row in rows).most_common():
        words.append(f"{number} {COUNTED[verdict or OPEN]}")
        if verdict == REPRODUCED and constant:
            words[-1] += f" ({constant} of them are the same in every dialog)"
    return f"of {count(len(rows), 'published figure')}, {', '.join(words)}."


def finding_text(study: Study) -> list[str]:
    """Return what a run finds in plain sentences; none without a verdict."""
    headline, numbers, details = finding(study)
    if not headline:
        return []
    return [
        headline,
        *numbers,
        *(f"{subject}: {details[subject]}" for subject in details),
    ]


def size_of_alignments(results: Results) -> str:
    """Say how small the alignments of Table 1 are; "" if larger than unrelated ones."""
    rows = [row for row in facts(results) if row.published and row.source == BENCHMARK]
    rows = [row for row in rows if row.metric == "late_alignment"]
    unrelated = []
    for row, key in product(rows, PROJECTED_ALIGNMENTS):
        values = results.values(row.scenario, row.policy, f"late_{key}")
        if values is not None:
            unrelated.append(float(values.mean()))
    if not unrelated:
        return ""
    published = [row.published_value for row in rows]
    measured = [row.mean for row in rows]
    if max(published) > min(measured) / 4:  # not clearly smaller than related ones
        return ""
    return (
        f"Its Table 1 has {_span(published)}; the key and the query matrix give "
        f"{_span(unrelated)}, as unrelated vectors do, and the value matrix {_span(measured)}."
    )


def _span(values: Sequence[float]) -> str:
    return f"{decimal(min(values))} to {decimal(max(values))}"


# ------------------------------------------------------------------------------- two runs


def changed_verdicts(first_study: Study, second_study: Study) -> Grid:
    """Return the figures and claims on which two runs have different verdicts."""
    first_verdicts = dict(_verdicts(first_study))
    second_verdicts = dict(_verdicts(second_study))
    rows = []
    for place, (words, verdict) in first_verdicts.items():
        if place in second_verdicts and verdict != second_verdicts[place][1]:
            rows.append([*place, words, verdict, *second_verdicts[place]])
    heads = ["figure or claim", "published", "this run", "verdict", "the other", "its verdict"]
    return Grid(heads, rows, 2)


def _verdicts(study: Study) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield each figure and claim with its published value: what was measured, and the verdict."""
    for table in measured_tables(study):
        for (row, column), fact in table.cells.items():
            if fact.published is not None:
                name = f"{table.heading}: {table.rows[row]}, {table.columns[column]}"
                place = name, fact.published.words
                yield place, (figure_words(fact), fact.verdict or "no verdict")
    for result in claim_results(study):
        printed = result.claim.published
        place = f"Claim: {result.claim.claim}", "" if printed is None else printed.words
        yield place, (measured_words(result), result.verdict or "no verdict")
