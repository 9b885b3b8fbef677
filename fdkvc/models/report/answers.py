"""The report on a model's answers."""

from html import escape
from typing import Any

from fdkvc.core.words import command_line, count
from fdkvc.engine.metrics import metrics_of
from fdkvc.models.results import AnswersRun
from fdkvc.player.report import FILE, REPORT, provenance, report_html
from fdkvc.runs.grid import marked, marks_sentence, pivot
from fdkvc.runs.options import options_of


def answers_report(run: AnswersRun) -> str:
    """Return the report on a model's answers."""
    scope = ["What policies keep of real dialogs, and what that costs."]
    table = run.summary
    settings = run.settings
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
            title = metric.heading()
            help = escape(metric.help)
            body += f"<h3>{escape(title)}</h3><p>{help}</p>{grid.html(title)}"
    options: dict[str, Any] = {"dialogs": FILE, **options_of(settings)}
    commands = [command_line("answers", options | {"baseline": run.baseline}), REPORT]
    how_to_repeat = provenance(commands, None)
    parts = {"Answers of a model": body, "How to repeat the answers": how_to_repeat}
    return report_html("Cache policies on real dialogs", scope, parts)
