"""Files of a whole study or sweep, and the paper's tables as Markdown and LaTeX."""

from __future__ import annotations

import io
import re
import zipfile

import pandas as pd

from fdkvc.experiments.benchmark import Results, default_baseline
from fdkvc.experiments.study import Study
from fdkvc.experiments.sweep import Sweep, swept_only
from fdkvc.files.export import ablation_files, benchmark_files, csv_text, finished
from fdkvc.files.record import run_json
from fdkvc.files.write import Files
from fdkvc.replication import tables
from fdkvc.replication.cells import (
    MeasuredTable,
    cells_table,
    figure_words,
    measured_tables,
    reproduced_sentence,
    sign_of,
    verdicts_of,
)
from fdkvc.replication.claims import claims_table, judged_claims
from fdkvc.replication.judge import Fact
from fdkvc.replication.projections import alignments_table, differences_table
from fdkvc.replication.rules import LEGEND, RULES
from fdkvc.words import minus

TIMED = ("latency.csv", "cost.csv", "cells.csv", "claims.csv", "tables.md", "tables.tex")
"""Files that hold times, which differ from run to run."""


def study_files(study: Study) -> dict[str, str]:
    """Return the files of a study by name, including those of its benchmark.

    The paper's tables are there as Markdown and LaTeX, too; ``run.json`` has digests of files
    without times.
    """
    results, benchmark = study.results, study.results.benchmark
    baseline = default_baseline(benchmark.policies)
    others = [policy.name for policy in benchmark.policies if policy.name != baseline]
    measured = measured_tables(study)
    files = benchmark_files(results, study.latencies, baseline)
    frames = {
        "cells": cells_table(measured),
        "claims": claims_table(judged_claims(study)),
        "series": tables.series_table(results),
        "comparison": tables.comparison_table(results, others, baseline),
        "alignments": alignments_table(results),
        "alignment_differences": differences_table(results),
        "dialogs": dialogs_table(results),
        "cost": tables.cost_table(study),
        **{
            f"ablation_{parameter}": tables.ablation_table(swept, parameter)
            for parameter, swept in study.sweeps.items()
        },
    }
    files |= {f"{name}.csv": csv_text(frame) for name, frame in frames.items()}
    files |= {"tables.md": markdown(measured), "tables.tex": latex(measured)}
    numbers = {name: text for name, text in files.items() if name not in (*TIMED, "run.json")}
    record = run_json("study", benchmark, numbers, results.seconds, finished=finished(results))
    return files | {"run.json": record}


def study_text(study: Study) -> str:
    """Return the measured tables of the paper, and the number of each verdict."""
    measured = measured_tables(study)
    verdicts = ", ".join(f"{verdict}: {n}" for verdict, n in verdicts_of(measured).items())
    return f"{markdown(measured)}\n{verdicts}\n{reproduced_sentence(measured)}".strip()


def sweep_files(sweep: Sweep, results: Results) -> dict[str, str]:
    """Return the files of a sweep by name; ``ablation.csv`` only of one hyperparameter."""
    files = {"sweep.csv": csv_text(tables.sweep_table(sweep, results))}
    if len(sweep.axes) == 1:
        files |= ablation_files(swept_only(sweep, results), sweep.parameters[0])
    record = run_json("sweep", sweep, files, results.seconds, finished=finished(results))
    return files | {"run.json": record}


def dialogs_table(results: Results) -> pd.DataFrame:
    """Return every number of every dialog: scenario, policy, metric, dialog (from 0) and value."""
    parts = [
        pd.DataFrame(
            {
                "scenario": scenario,
                "policy": policy,
                "metric": metric,
                "dialog": range(len(values)),
                "value": values,
            }
        )
        for scenario, by_policy in results.measured.items()
        for policy, measured in by_policy.items()
        for metric, values in measured.values.items()
    ]
    columns = ["scenario", "policy", "metric", "dialog", "value"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def as_zip(files: Files) -> bytes:
    """Pack files into one archive; the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # without the time of packing
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()


# ------------------------------------------------------------------------------- tables as text


def markdown(measured: list[MeasuredTable]) -> str:
    """Return the measured tables as Markdown, with published figures in brackets."""
    parts = []
    for table in measured:
        frame = _frame(table)
        rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
        lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
        parts.append("\n".join([f"### {table.heading}", "", *lines]))
    legend = "\n".join(f"- {rule}" for rule in LEGEND)
    signs = ", ".join(f"{rule.sign} {rule.verdict}" for rule in RULES)
    note = f"Measured ± half of the 95 % interval (published, verdict): {signs}."
    return "\n\n".join([*parts, note, legend]) + "\n"


_TEX = {
    "\\": r"\textbackslash{}",
    "w_c": "$w_c$",
    "w_ρ": r"$w_\rho$",
    "gamma": r"$\gamma$",
    "%": r"\%",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
    "±": r"$\pm$",
    "−": "$-$",
    **{rule.sign: f"${rule.tex}$" for rule in RULES},
    "γ": r"$\gamma$",
    "α₀": r"$\alpha_0$",
    "τ": r"$\tau$",
    "β": r"$\beta$",
    "μ": r"$\mu$",
    "ρ": r"$\rho$",
}


def latex(measured: list[MeasuredTable]) -> str:
    """Return the measured tables as LaTeX, with published figures in brackets."""
    parts = [
        r"% Needs \usepackage{booktabs,amssymb}.",
        "% Measured, half of the 95 % interval (published, verdict): "
        + ", ".join(rule.tex.removeprefix("\\") + f" {rule.verdict}" for rule in RULES)
        + ".",
    ]
    for table in measured:
        frame = _frame(table).map(_tex)
        frame.columns = pd.Index([_tex(name) for name in frame.columns])
        parts.append(
            frame.to_latex(
                index=False,
                escape=False,
                column_format="l" + "r" * len(table.columns),
                caption=_tex(f"{table.title}, measured and (published)"),
                label=f"tab:measured-{table.number}",
            )
        )
    return "\n".join(parts)


# One pass, so that no replacement is replaced again.
_TEX_SIGNS = re.compile("|".join(map(re.escape, sorted(_TEX, key=len, reverse=True))))


def _tex(text: str) -> str:
    return _TEX_SIGNS.sub(lambda found: _TEX[found[0]], text)


def _frame(table: MeasuredTable) -> pd.DataFrame:
    rows = [[label, *table.texts(row, _text)] for row, label in table.rows.items()]
    return pd.DataFrame(rows, columns=[table.corner, *table.columns.values()])


def _text(fact: Fact) -> str:
    words = figure_words(fact)
    if not fact.is_published:
        return words
    return f"{words} ({minus(fact.printed)} {sign_of(fact)}".rstrip() + ")"
