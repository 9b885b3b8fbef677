"""A shareable report: claims with verdict and evidence, tables, figures, examples, provenance."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from fdkvc.charts.picture import picture
from fdkvc.charts.theme import LIGHT, VARIABLES, Spec
from fdkvc.corpora.lexical import LEXICAL
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.benchmark import Benchmark, matches_paper
from fdkvc.experiments.replay import transcripts_of
from fdkvc.experiments.statistics import over_clusters
from fdkvc.experiments.study import Study
from fdkvc.experiments.workers import processor
from fdkvc.files.options import options_of
from fdkvc.files.record import digest, versions
from fdkvc.files.shipped import papers_run
from fdkvc.grid import PLACES, Grid, marked, marks_sentence, pivot
from fdkvc.kinds.answers import AnswersRun
from fdkvc.kinds.base import Run as AnyRun
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.kinds.replay import ReplayRun, replay_grid
from fdkvc.policies import policy_named
from fdkvc.replication.cells import measured_tables, reproduced_sentence, verdicts_of
from fdkvc.replication.claims import judged_claims
from fdkvc.replication.rules import LEGEND, SIGNS
from fdkvc.report import claims, tables
from fdkvc.report.figures import TEXTS, titled_charts
from fdkvc.report.page import css, page
from fdkvc.report.scene import moment_html
from fdkvc.run.metrics import late_metric, metrics_of
from fdkvc.stage.moments import Failure, failed_call, nearly_kept, rescued
from fdkvc.stage.run import DialogChoice, Run, build_run
from fdkvc.synthetic.scenarios import World, scenario_named
from fdkvc.words import command_line, count

PICTURE_WIDTH = 560

MOMENT_SEED, MOMENT_POLICY = 7, "fd-kvc"
"""The dialog of the first two examples, with which the page Step through opens."""

FILE = "FILE"
"""A placeholder for the user's file in a command."""

REPORT = "python -m fdkvc report --run results/run.json --out report.html"
"""The command for the report on a run."""


# ------------------------------------------------------------------------------- the whole


def report_html(title: str, scope: Sequence[str], parts: Mapping[str, str], made: str = "") -> str:
    """Return a report as a whole page, on `scope`, one string per paragraph.

    `parts` are HTML by their titles in words; `made` says when it was measured; today by default.
    """
    day = made or datetime.now(UTC).date().isoformat()
    contents = sections = ""
    for words, inside in parts.items():
        name, heading = re.sub(r"\W+", "-", words.lower()).strip("-"), escape(words)
        contents += f'<li><a href="#{name}">{heading}</a></li>'
        sections += f'<section id="{name}"><h2>{heading}</h2>{inside}</section>'
    paragraphs = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in scope)
    version = versions()["fdkvc-lab"]
    body = (
        f"<main><header><h1>{escape(title)}</h1>"
        f"<p>Measured on {escape(day)}; written by FD-KVC Lab {escape(version)}.</p>"
        f"{paragraphs}<nav><ol>{contents}</ol></nav></header>{sections}</main>"
    )
    return page(title, body, f"{css('document')}{claims.STYLE}{tables.STYLE}")


def papers_report(recordings: Sequence[Recording]) -> str:
    """Return the report of the shipped run with the paper's settings."""
    run = papers_run()
    seed = run.study.results.benchmark.seed
    ran = ran_on(seed, {"fdkvc-lab": run.version}, run.processor)
    return study_report(run.study, recordings, ran, f"{run.made} with version {run.version}")


def study_report(
    study: Study,
    recordings: Sequence[Recording],
    ran: Mapping[str, str] | None = None,
    made: str = "",
) -> str:
    """Return the report of a study, with a failed call in these recordings of real dialogs.

    `ran` has seed, versions and processor, by default the current ones; `made` as for
    `report_html`.
    """
    benchmark = study.results.benchmark
    finished = min(map(study.results.dialogs, study.results.measured), default=0)
    scope = [
        "The tables, figures and claims of Ganguly, Fractional Decay KV-Cache (FD-KVC), measured "
        "again, compared with the published numbers, and judged.",
        f"{count(finished, 'dialog')} of each of {count(len(benchmark.scenarios), 'scenario')}, "
        f"{count(len(benchmark.policies), 'policy', 'policies')} on the same dialogs, a cache of "
        f"{count(benchmark.budget, 'entry', 'entries')}, seed {benchmark.seed}.",
    ]
    if finished < benchmark.dialogs:
        scope.append(f"The run was cancelled: {benchmark.dialogs:,} dialogs were requested.")
    effort = "".join(f"<h3>{kind['title']}</h3>{_list(kind['points'])}" for kind in TEXTS["effort"])
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
            ran or ran_on(benchmark.seed),
            StudyRun(study).files,
        ),
    }
    return report_html("FD-KVC: the paper's claims, measured again", scope, parts, made)


def ran_on(
    seed: int | None,
    packages: Mapping[str, str] | None = None,
    processors: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return what numbers depend on: a seed, and versions and processor, by default those here."""
    on = {f"processor, {name}": which for name, which in (processors or processor()).items()}
    return {**({} if seed is None else {"seed": str(seed)}), **(packages or versions()), **on}


def provenance(commands: Sequence[str], ran: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return how to repeat a run: commands, seeds, versions, and digests of the files."""
    lines = "\n".join(commands)
    seeds = Grid(["item", "value"], [*ran.items()]).html("Seeds and versions", "grid words")
    digests = [(name, digest(text)) for name, text in files.items()]
    sums = Grid(["file", "SHA-256"], digests).html("Digests", "grid words")
    return (
        f"<p>The commands:</p><pre>{escape(lines)}</pre>"
        f"{seeds}<details><summary>SHA-256 of the files that the first command writes; those with "
        f"times differ from run to run</summary>{sums}</details>"
    )


# ------------------------------------------------------------------------------- the parts


def _list(points: Iterable[str]) -> str:
    """Return points, in which ``**`` marks bold words, as a list in HTML."""
    items = (re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(point)) for point in points)
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _claims(study: Study) -> str:
    judged = judged_claims(study)
    counts = _list(
        f"**{claims.MARKS[verdict][0]} {claims.name_of(verdict)}: {number}**, "
        f"{claims.MARKS[verdict][1]}"
        for verdict, number in claims.counted(judged).items()
        if number
    )
    return f"<p>Of {len(judged)} claims:</p>{counts}{claims.claims_html(judged, opened=True)}"


def _tables(study: Study) -> str:
    measured = measured_tables(study)
    counts = verdicts_of(measured)
    counted = (
        ", ".join(f"{SIGNS[verdict]} {verdict} {number}" for verdict, number in counts.items())
        if any(counts.values()) and matches_paper(study.results.benchmark)
        else "no verdict"
    )
    return (
        f"<p>Measured ± half-width of the 95 % interval, above the published figure; {PLACES}. "
        f"Published figures: {escape(counted)}. {escape(reproduced_sentence(measured))}</p>"
        + "".join(
            f"<h3>{escape(table.heading)}</h3>{tables.measured_html(table)}" for table in measured
        )
        + f"<details><summary>How a figure is judged</summary>{_list(LEGEND)}</details>"
    )


def _figures(study: Study) -> str:
    parts = []
    for title, words, charts in titled_charts(study, LIGHT):
        drawn = "".join(drawing(chart, name) for name, chart in charts.items())
        parts.append(
            f"<h3>{escape(title)}</h3><p>{escape(words)}</p><div class='row'>{drawn}</div>"
        )
    return "".join(parts) or "<p>This run measured none of the paper's figures.</p>"


def drawing(chart: Spec, name: str) -> str:
    """Return a chart in the colours of `LIGHT` as an SVG that uses the colours of the page.

    `name` is unique in the page.
    """
    drawn = picture(chart, LIGHT, PICTURE_WIDTH)
    drawn = drawn[drawn.index("<svg") :]
    # Ids are unique within a picture only, and a page may hold many.
    drawn = re.sub(r'\bid="', f'id="{name}-', drawn).replace("url(#", f"url(#{name}-")
    for variable, (colour, _) in VARIABLES.items():
        drawn = re.sub(rf'"{colour}"', f'"var(--{variable})"', drawn, flags=re.IGNORECASE)
    return f"<figure>{drawn}</figure>"


def _moments(recordings: Sequence[Recording]) -> str:
    """Return an eviction, a rescue and a failed call as interactive stages."""
    policy = policy_named(MOMENT_POLICY)
    mixed = DialogChoice(scenario_named("mixed"), MOMENT_SEED, World())
    run = build_run(mixed, policy, Benchmark.budget)
    scenes = ""
    for what, (turn, token) in (("An eviction", nearly_kept(run)), ("A rescue", rescued(run))):
        title = f"{what}: {policy.title} on {mixed.title}, turn {turn}"
        scenes += framed_moment(run, title, turn, token)
    failure = failed_call(recordings, policy, Benchmark.budget)
    if failure is not None:
        scenes += failed_scene(failure)
    return (
        "<p>Step with the buttons, or click into an example and use the arrow keys. Point "
        "at an entry to see why it is kept or evicted; click to pin it and read more.</p>"
        f"{scenes}"
    )


def failed_scene(failure: Failure) -> str:
    """Return the turn in which a call lost an argument that it needs, in an iframe."""
    run, demand = failure.run, failure.demand
    title = f"A failed call: {run.trace.policy.title} loses “{demand.value}” in turn {failure.turn}"
    words = (
        f"{demand.source} in turn {demand.turn} needs {demand.slot}, which "
        f"was last mentioned in turn {demand.mentions[-1].turn}; the cache holds "
        f"{count(run.trace.budget, 'entry', 'entries')}."
    )
    return framed_moment(run, title, failure.turn, failure.token, words)


def framed_moment(run: Run, title: str, turn: int, token: int | None, words: str = "") -> str:
    """Return a turn of a run in an iframe, which isolates its keys and names."""
    named, inside = escape(title), escape(moment_html(run, title, turn, token, words))
    return (
        f'<iframe class="scene" title="{named}" srcdoc="{inside}" sandbox="allow-scripts"></iframe>'
    )


# ------------------------------------------------------------------------------- dialogs, answers


def dialogs_report(run: AnyRun, more: Sequence[str] = ()) -> str:
    """Return the report on a replay or on answers; `more` has a string per paragraph on the run."""
    if isinstance(run, ReplayRun):
        parts = replay_parts(run)
    else:
        assert isinstance(run, AnswersRun)
        parts = answers_parts(run)
    scope = ["What policies keep of real dialogs, and what that costs.", *more]
    return report_html("Cache policies on real dialogs", scope, parts)


def replay_parts(run: ReplayRun) -> dict[str, str]:
    """Return the parts of a report on a replay; its failed call is of FD-KVC if it ran."""
    settings, replayed, recordings = run.settings, run.table, run.recordings
    body = (
        f"<p>{escape(count(int(replayed.dialog.nunique()), 'dialog'))} replayed; attention by "
        f"{escape(run.source)}. Means over dialogs, with the 95 % interval "
        f"{over_clusters(replayed.services.nunique())}; {escape(marks_sentence(run.baseline))}.</p>"
    )
    for metric in dict.fromkeys(replayed.metric):
        title = late_metric(metric).heading()
        grid = replay_grid(replayed, run.baseline, metric)
        body += f"<h3>{escape(title)}</h3>{grid.html(title)}"
    parts = {}
    if run.shape is not None:
        verdict = run.verdict(run.shape, run.target)
        parts["Verdict"] = f"<p>{escape(verdict.sentence)}</p><p>{escape(verdict.caution)}</p>"
    parts["Real dialogs"] = body
    policies = {policy.key: policy for policy in reversed(settings.policies)}
    policy = policies.get(MOMENT_POLICY, settings.policies[0])
    failure = failed_call(recordings, policy, min(settings.budgets))
    if failure is not None:
        parts["A failed call"] = failed_scene(failure)
    trace = not run.source.startswith(LEXICAL)
    options: dict[str, Any] = {"trace" if trace else "dialogs": FILE, **options_of(settings)}
    if trace:  # the default depends on its heads
        options["heads"] = settings.heads
    elif any(text.calls_in_text for text in transcripts_of(recordings)):
        options["calls"] = ()
    dialogs = command_line("dialogs", options | {"baseline": run.baseline, "seed": run.seed})
    commands = [dialogs, REPORT]
    if run.vectors:
        commands = [f"python -m fdkvc app  # the page Dialogs with {run.vectors} in its address"]
    again = provenance(commands, ran_on(run.seed), run.files)
    return {**parts, "How to repeat the dialogs": again}


def answers_parts(run: AnswersRun) -> dict[str, str]:
    """Return the parts of a report on a model's answers."""
    table, settings = run.summary, run.settings
    body = (
        f"<p>The model {escape(run.model.name)} answers "
        f"{escape(count(int(table.n.max()), 'dialog'))} with "
        "the cache that each policy leaves. Means with the 95 % interval over clusters, "
        f"where there are enough; {escape(marks_sentence(run.baseline, run.places))}.</p>"
    )
    for key, metric in metrics_of("answers").items():
        if key in set(table.metric):
            rows = table[table.metric == key]
            grid = pivot(rows, marked(rows, run.paired, run.places))
            title, help = metric.heading(), escape(metric.help)
            body += f"<h3>{escape(title)}</h3><p>{help}</p>{grid.html(title)}"
    options: dict[str, Any] = {"dialogs": FILE, **options_of(settings)}
    if "policies" in options or not settings.cut_text:
        options["policies"] = settings.names[1:]
    commands = [command_line("answers", options | {"baseline": run.baseline}), REPORT]
    again = provenance(commands, ran_on(None), run.files)
    return {"Answers of a model": body, "How to repeat the answers": again}
