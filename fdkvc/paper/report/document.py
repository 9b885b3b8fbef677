"""The report on the paper: claims with verdict and evidence, tables, figures, examples."""

from collections.abc import Mapping, Sequence
from html import escape

from fdkvc.charts.theme import LIGHT
from fdkvc.core.recordings import Recording
from fdkvc.core.words import command_line, count
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.replication.cells import measured_tables
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.finding import finding_text
from fdkvc.paper.replication.rules import LEGEND
from fdkvc.paper.report import claims, tables
from fdkvc.paper.report.figures import TEXTS, titled_charts
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from fdkvc.player.moments import MOMENT_POLICY, failed_call, nearly_kept, rescued
from fdkvc.player.report import (
    drawing,
    failed_scene,
    framed_moment,
    listing,
    provenance,
    report_html,
)
from fdkvc.player.run import DialogChoice, build_run
from fdkvc.policies import policy_named
from fdkvc.runs.grid import PLACES
from fdkvc.runs.options import options_of
from fdkvc.synthetic.scenarios import World, scenario_named

MOMENT_SEED = 7
"""The seed of the first two examples: the dialog on which the page Step through opens."""


def papers_report(recordings: Sequence[Recording]) -> str:
    """Return the report of the shipped run with the paper's settings."""
    run = papers_run()
    packages = {"fdkvc-lab": run.version}
    return study_report(run.study, recordings, packages, f"{run.date} with version {run.version}")


def study_report(
    study: Study,
    recordings: Sequence[Recording],
    packages: Mapping[str, str] | None = None,
    measured: str = "",
) -> str:
    """Return the report of a study, with a failed call in these recordings of real dialogs.

    `packages` are versions, by default the current ones; `measured` as for `report_html`.
    """
    benchmark = study.results.benchmark
    finished = min(map(study.results.dialogs, study.results.measured), default=0)
    scope = [
        *finding_text(study),
        "The tables, figures and claims of Ganguly, Fractional Decay KV-Cache (FD-KVC), measured "
        "again and compared with the published numbers.",
        f"{count(finished, 'dialog')} of each of {count(len(benchmark.scenarios), 'scenario')}, "
        f"{count(len(benchmark.policies), 'policy', 'policies')} on the same dialogs, a cache of "
        f"{count(benchmark.budget, 'entry', 'entries')}, seed {benchmark.seed}.",
    ]
    if finished < benchmark.dialogs:
        scope.append(f"The run was cancelled: {benchmark.dialogs:,} dialogs were requested.")
    effort = ""
    for kind in TEXTS["effort"]:
        effort += f"<h3>{kind['title']}</h3>{listing(kind['points'])}"
    parts = {
        "Claims": _claims(study),
        "Tables": _tables(study),
        "Figures": _figures(study),
        "Three examples": _moments(recordings),
        "What was easy, what was hard, what was not tried": effort,
        "How to repeat it": provenance(
            [
                command_line("benchmark --all", options_of(benchmark)),
                "python -m fdkvc report --out report.html",
                f"python -m fdkvc trace --scenario mixed --policy {MOMENT_POLICY} "
                f"--seed {MOMENT_SEED} --out results/trace",
            ],
            benchmark.seed,
            packages,
        ),
    }
    style = f"{claims.STYLE}{tables.STYLE}"
    return report_html("FD-KVC: the paper's claims, measured again", scope, parts, measured, style)


def _claims(study: Study) -> str:
    results = claim_results(study)
    counts = []
    for verdict, number in claims.counted(results).items():
        if number:
            sign, meaning = claims.MARKS[verdict]
            counts.append(f"**{sign} {claims.name_of(verdict)}: {number}**, {meaning}")
    opens = "A click opens a claim's reason and numbers."
    head = f"<p>Of {len(results)} claims, in the paper's order. {opens}</p>"
    return f"{head}{listing(counts)}{claims.claims_html(results)}"


def _tables(study: Study) -> str:
    explanation = (
        f"Measured ± half-width of the 95 % interval, above the published figure; {PLACES}."
    )
    parts = {table.heading: tables.measured_html(table) for table in measured_tables(study)} | {
        "How a figure is compared": listing(LEGEND)
    }
    return f"<p>{escape(explanation)}</p>{_folded(parts)}"


def _figures(study: Study) -> str:
    parts = {}
    for title, words, draw in titled_charts(study):
        drawings = "".join(drawing(chart, name) for name, chart in draw(LIGHT).items())
        parts[title] = f"<p>{escape(words)}</p><div class='row'>{drawings}</div>"
    return _folded(parts) or "<p>This run measured none of the paper's figures.</p>"


def _folded(parts: Mapping[str, str]) -> str:
    """Return parts by title as sections that a click opens; titles are plain text."""
    html = ""
    for title, inside in parts.items():
        html += f"<details class='part'><summary>{escape(title)}</summary>{inside}</details>"
    return html


def _moments(recordings: Sequence[Recording]) -> str:
    """Return an eviction, a rescue and a failed call as interactive stages."""
    policy = policy_named(MOMENT_POLICY)
    mixed = DialogChoice(scenario_named("mixed"), MOMENT_SEED, World())
    run = build_run(mixed, policy, Benchmark.budget)
    scenes = ""
    for title, (turn, token) in (("An eviction", nearly_kept(run)), ("A rescue", rescued(run))):
        title = f"{title}: {policy.title} on {mixed.title}, turn {turn}"
        scenes += framed_moment(run, title, turn, token)
    failure = failed_call(recordings, policy, Benchmark.budget)
    if failure is not None:
        scenes += failed_scene(failure)
    return (
        "<p>Step with the buttons, or click into an example and use the arrow keys. Point "
        "at an entry to see why it is kept or evicted; click to pin it and read more.</p>"
        f"{scenes}"
    )
