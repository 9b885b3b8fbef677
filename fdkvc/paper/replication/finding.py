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
    OTHER_MATRICES,
    VALUES,
    ClaimResult,
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

CHOICES = "Choices"
"""The subject of what limits every verdict."""


class Finding(NamedTuple):
    """What a run finds, in words."""

    headline: str
    numbers: str
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
        return Finding("", "", {})
    groups: dict[str, list[str]] = {REPRODUCED: [], OPEN: [], NOT_REPRODUCED: []}
    for metric, rows in by_metric.items():
        kinds = (row.verdict if row.verdict in groups else NOT_REPRODUCED for row in rows)
        ((most_frequent, _),) = Counter(kinds).most_common(1)
        groups[most_frequent].append(metric)
    # 2. Each group in words.
    parts = []
    details = {}
    for kind, metrics in groups.items():
        if metrics:
            rows = [*chain.from_iterable(by_metric[metric] for metric in metrics)]
            verdicts = Counter(row.verdict for row in rows)
            reproduced = verdicts.pop(REPRODUCED, 0)
            figures = f"{reproduced} of {len(rows)} {listed(metrics)} figures"
            remarks = [f"{verdicts[name]} {COUNTED[name or OPEN]}" for name in verdicts]
            fd_kvc = [row.verdict for row in rows if row.policy.startswith("fd-kvc")]
            if reproduced and fd_kvc:
                own_figures = f"{fd_kvc.count(REPRODUCED)} of {len(fd_kvc)}"
                remarks.insert(0, f"FD-KVC's own: {own_figures}")
            parts.append(f"{figures} ({'; '.join(remarks)})" if remarks else figures)
            words = _counted(rows)
            if kind == NOT_REPRODUCED and "alignment" in metrics:
                alignments = size_of_alignments(study.results)
                words = f"with the value matrix, {words} {alignments}".rstrip()
            details[sentence(listed(metrics))[:-1]] = words
    # 3. The claims by verdict, and what the failed ones are about.
    claims = claim_results(study)
    counts = Counter[str | None](result.verdict for result in claims)
    counted_verdicts = {
        "hold": counts["holds"],
        "hold (figure not confirmed)": counts["direction only"],
        "are open": counts[OPEN],
        "have no verdict": counts[None],
        "do not hold": counts["does not hold"],
    }
    numbers = [f"{number} {verdict}" for verdict, number in counted_verdicts.items() if number]
    kinds_in_words = {
        REPRODUCED: "are reproduced, with open choices made to match them",
        OPEN: "are open",
        NOT_REPRODUCED: "are not",
    }
    clauses = []
    for kind, metrics in groups.items():
        if metrics:
            clauses.append(f"most figures of {listed(metrics)} {kinds_in_words[kind]}")
    clauses.append(f"{counts['does not hold']} of {len(claims)} claims do not hold")
    headline = sentence("; ".join(clauses))
    verdicts_in_words = f"In the tables: {listed(parts)}. Claims in the text: "
    verdicts_in_words += f"of {len(claims)}, {listed(numbers)}."
    details[CHOICES] = (
        "Where the paper leaves a choice open, this project makes one that matches its tables, so "
        "a match shows less."
        f"{_words_by_matrix(claims)}"
    )
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
    return Finding(headline, verdicts_in_words, details)


def _words_by_matrix(claims: Sequence[ClaimResult]) -> str:
    """Say how many claims on alignment hold at most with a matrix; "" if one is measured."""
    about_alignment = [result for result in claims if result.other_matrices]
    if not about_alignment:
        return ""
    holding = []
    for matrix in (VALUES, *OTHER_MATRICES):
        results = [result.other_matrices.get(matrix, result) for result in about_alignment]
        holding.append([result.verdict for result in results].count("holds"))
    return (
        " Not so for alignment: the paper does not say which matrix (values, keys or queries) "
        "projects the topic. With that of values, used here, its figures do not come out, which "
        f"does not show that they are wrong. {len(about_alignment)} claims were measured with all "
        f"three: no matrix makes more than {max(holding)} of them hold with their figure."
    )


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
            words[-1] += (
                f" ({constant} of them come out alike in each dialog, so chance plays no part)"
            )
    return f"of {count(len(rows), 'published figure')}, {', '.join(words)}."


def finding_text(study: Study) -> list[str]:
    """Return what a run finds in plain sentences; none without a verdict."""
    headline, numbers, details = finding(study)
    if not headline:
        return []
    return [
        f"{headline} {numbers}",
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
        f"The alignments of Table 1 ({_span(published)}) are close to those of unrelated vectors "
        f"(with the key or the query matrix {_span(unrelated)}), and far from those with the value "
        f"matrix ({_span(measured)})."
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
