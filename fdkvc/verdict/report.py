"""The report on a replay of real dialogs."""

from collections.abc import Sequence
from html import escape
from typing import Any

from fdkvc.conversations.arguments import worst_losses
from fdkvc.conversations.lexical import LEXICAL
from fdkvc.conversations.replay import transcripts_of
from fdkvc.core.statistics import over_clusters
from fdkvc.core.words import command_line, count
from fdkvc.engine.metrics import late_metric
from fdkvc.player.moments import MOMENT_POLICY, failed_call
from fdkvc.player.report import FILE, REPORT, failed_scene, provenance, report_html
from fdkvc.policies.ways import way_words
from fdkvc.runs.grid import Grid, marks_sentence
from fdkvc.runs.options import options_of
from fdkvc.verdict.card import Card
from fdkvc.verdict.model_shape import option_of
from fdkvc.verdict.results import LOSS_COLUMNS, ReplayRun, replay_grid
from fdkvc.verdict.sentences import card_grid, card_sentences, settings


def replay_report(run: ReplayRun, notes: Sequence[str] = ()) -> str:
    """Return the report on a replay; `more` has a string per paragraph on the run."""
    scope = ["What policies keep of real dialogs, and what that costs.", *notes]
    return report_html("Cache policies on real dialogs", scope, replay_parts(run))


def card_html(run: ReplayRun, card: Card) -> str:
    """Return the sentences, the table, what a model read, and the worst losses."""
    html = "".join(f"<p>{escape(words)}</p>" for words in card_sentences(card))
    html += card_grid(card).html("Ways to fit the conversations")
    for engine, line in settings(card).items():
        html += f"<p>{escape(engine)}</p><pre>{escape(line)}</pre>"
    best = card.best
    if best is None or best.size is None:
        return html
    losses = worst_losses(run.lost(best.policy, best.size))
    if len(losses):
        rows = losses[[*LOSS_COLUMNS]].astype(str).to_numpy().tolist()
        title = f"What {way_words(best.policy)} loses at {best.size:,} tokens"
        html += f"<h3>{escape(title)}</h3>{Grid([*LOSS_COLUMNS.values()], rows, 4).html(title)}"
    return html


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
    if (card := run.card) is not None:
        parts["Verdict"] = card_html(run, card)
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
    if run.shape is not None:
        options |= {"plan": option_of(run.shape), "target": f"{100 * run.target:.0f}"}
        if run.encoding:
            options["tokens"] = run.encoding
    if run.searched:
        del options["budgets"]
    dialogs = command_line("dialogs", options | {"baseline": run.baseline, "seed": run.seed})
    commands = [dialogs, REPORT]
    if run.vectors:
        commands = [f"python -m fdkvc app  # the page Dialogs with {run.vectors} in its address"]
    repeat_html = provenance(commands, run.seed)
    return {**parts, "How to repeat the dialogs": repeat_html}
