"""Replays: the dialogs of a file, or a trace, under policies and budgets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import wrap
from time import perf_counter
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import (
    AGE_LABELS,
    SOURCE_LABELS,
    forgotten,
    source_recall,
    worst_losses,
)
from fdkvc.conversations.lexical import LEXICAL
from fdkvc.conversations.replay import Replay, replay_arguments, transcripts_of
from fdkvc.conversations.sources import OTHER_FILE, Sources
from fdkvc.core.parameters import SEED
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import over_clusters
from fdkvc.core.transcripts import CALLS_NOTE, Transcript
from fdkvc.core.words import count
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import first_places, mean_table, paired_differences
from fdkvc.explain.notes import missing_value_notes, unread_kinds
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import baseline_of, read_policy, usable
from fdkvc.runs.base import Run
from fdkvc.runs.grid import Grid, figures, marked, marks_sentence, pivot
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record
from fdkvc.verdict.card import TARGETS, Card, ModelRead, find_card
from fdkvc.verdict.model_shape import ModelShape
from fdkvc.verdict.search import Tables, cases_at, dialog_lengths, find_sizes, least_lengths
from fdkvc.verdict.sentences import (
    card_record,
    card_sentences,
    settings,
    short_grid,
    table_note,
)
from fdkvc.verdict.today import Today, TodayLoss, lose_today

TOKENIZER = "tokenizer.json"
"""The place of an encoding whose content a page was given."""

LOSS_COLUMNS = {
    "dialog": "dialog",
    "call": "call",
    "slot": "argument",
    "value": "value",
    "calls": "calls",
    "turn": "in turn",
    "mentioned": "mentioned",
    "lost": "evicted",
}
"""Columns of what was forgotten, and their headings."""

WIDTH, LINES = 100, 24
"""Columns of a terminal, and the lines of a card."""

UNBROKEN: Any = {"break_on_hyphens": False, "break_long_words": False}
"""How a line to copy is wrapped."""

WORDS_OF = "words"
"""The unit of a run of an earlier version, which counted words and punctuation marks."""

FULL_GRID = "fdkvc dialogs --tables prints all tables with intervals, --out DIR writes them"


@dataclass(frozen=True, eq=False)
class ReplayRun(Run):
    """A replay of recordings."""

    kind = "replay"
    settings_type = Replay
    depends: ClassVar = {
        "source": str,
        "name": str | None,
        "file": str,
        "seed": int,
        "dialogs": int,
        "baseline": str,
        "shape": ModelShape | None,
        "target": float | None,
        "searched": bool | None,
        "encoding": str | None,
        # Of runs of former versions: `again` refuses vectors of a model, and letters have one head.
        "vectors": str | None,
        "heads": tuple[str, ...] | None,
        "unread": dict[str, int] | None,
        "today": str | None,
    }

    settings: Replay
    """What ran."""
    recordings: Sequence[Recording]
    """On which it ran."""
    table: pd.DataFrame
    """As `replay` returns it."""
    arguments: pd.DataFrame
    """Every argument of every call, as `replay_arguments` returns it."""
    seconds: float
    """How long it took."""
    digest: str
    """The SHA-256 of the file of dialogs."""
    name: str | None = None
    """The name of that file, if it is not the examples."""
    seed: int = SEED.default
    """Of the lexical embedding."""
    baseline: str = ""
    """The policy to compare with; `baseline_of` by default."""
    shape: ModelShape | None = None
    """Of the model whose cache a card is for."""
    target: float = TARGETS[1]
    """The share of needed values that a card is to keep."""
    searched: bool | None = None
    """Whether each policy ran at the sizes that tell its smallest one, and not at all budgets."""
    read: ModelRead | None = None
    """What a model read of it."""
    today: TodayLoss | None = None
    """What is lost today."""

    def __post_init__(self) -> None:
        if not self.baseline:
            object.__setattr__(self, "baseline", baseline_of(self.settings.policies))

    @classmethod
    def measure(
        cls,
        settings: Replay,
        recordings: Sequence[Recording],
        run_fields: dict[str, Any],
        **how: Unpack[Execution],
    ) -> Self:
        """Run a replay; `run_fields` has the other fields by name."""
        began = perf_counter()
        if isinstance(today := run_fields.get("today"), Today):
            run_fields = run_fields | {"today": lose_today(today, recordings, **how)}
        if run_fields.get("searched"):
            tables = find_sizes(settings, recordings, run_fields["target"], **how)
        else:
            tables = replay_arguments(settings, recordings, **how)
        settings = at_sizes(settings, tables)
        return cls(settings, recordings, *tables, perf_counter() - began, **run_fields)

    @classmethod
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        run_fields = record.dependencies
        name = record.dependencies.get("name")
        encoding = run_fields.get("encoding")
        if encoding == TOKENIZER:
            raise ValueError(
                "this run counted tokens by a tokenizer.json that only the page Dialogs was given"
            )
        source = run_fields["source"]
        if not source.startswith(LEXICAL):
            raise ValueError(
                "this run replayed vectors of a model, as versions before 2.1 did"
            )
        # Only the source says whether calls were text.
        calls = CALLS_NOTE in source
        sources = replace(sources.named_in_run(name), seed=run_fields["seed"], calls=calls)
        recordings, digest = sources.read_recordings()
        if digest != run_fields["file"]:
            raise ValueError(OTHER_FILE)
        if encoding is not None:
            recordings, _ = Encoding.of_model(encoding).in_tokens(recordings)
        recordings = recordings[: max(1, run_fields["dialogs"])]
        field_names = ("name", "seed", "shape", "baseline", "searched")
        again = {key: run_fields.get(key) for key in field_names}
        again["target"] = run_fields.get("target") or TARGETS[1]
        today = run_fields.get("today")
        again["today"] = None if today is None else Today.read(today)
        return cls.measure(record.settings, recordings, again | {"digest": digest}, **how)

    @property
    def dependencies(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "name": self.name,
            "file": self.digest,
            "seed": self.seed,
            "dialogs": int(self.table.dialog.nunique()),
            "baseline": self.baseline,
            "shape": self.shape,
            "target": None if self.shape is None else self.target,
            "searched": self.searched,
            "encoding": self.encoding,
            "unread": unread_kinds(transcripts_of(self.recordings)) or None,
            "today": None if self.today is None else str(self.today.today),
        }

    @cached_property
    def source(self) -> str:
        """What computed the vectors, in words."""
        return self.recordings[0].source

    @property
    def _encoding(self) -> Encoding | None:
        """What counts tokens; None for words, or vectors of a model."""
        return getattr(self.recordings, "encoding", None)

    @property
    def encoding(self) -> str | None:
        """The place of the tokenizer that counts tokens."""
        place = None if self._encoding is None else self._encoding.place
        return TOKENIZER if isinstance(place, bytes) else place

    @property
    def unit(self) -> str:
        """Whose tokens sizes are."""
        return WORDS_OF if self._encoding is None else self._encoding.name

    def counts_as(self, shape: ModelShape) -> bool:
        """Whether tokens are those of the model of a shape, as far as is known."""
        encoding = self._encoding
        if encoding is None:
            return False
        if not shape.vocabulary:
            return self.unit != Encoding.name
        return shape.has_tokens(encoding.vocabulary)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """The length of each dialog."""
        return dialog_lengths(self.recordings)

    @cached_property
    def sources(self) -> pd.DataFrame:
        """The recall of arguments by source and age."""
        return source_recall(self.arguments)

    @cached_property
    def forgotten(self) -> pd.DataFrame:
        """The arguments that were no longer cached, oldest mention first."""
        return forgotten(self.arguments)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        tables = {
            "replay.csv": self.table,
            "replay_summary.csv": mean_table(self.table),
            "replay_paired.csv": paired_differences(self.table, self.baseline),
            "replay_sources.csv": self.sources,
            "replay_forgotten.csv": self.forgotten,
        }
        if (card := self.card) is not None:
            # What a model lost, in columns.
            candidates = pd.json_normalize(card_record(card)["ways"])
            tables["plan.csv"] = candidates.drop(columns="reading", errors="ignore")
        return tables

    def with_read(self, read: ModelRead, **execution: Unpack[Execution]) -> Self:
        """Return the run with what a model has read; sizes that it found are replayed by words."""
        tried = {*zip(self.table.policy, self.table.budget, strict=True)}
        next_tries = dict[str, int]()
        for name, size in read.sizes.items():
            if size is not None and (name, size) not in tried:
                next_tries[name] = size
        if not next_tries:
            return replace(self, read=read)
        cases = cases_at(self.settings, next_tries)
        tables = replay_arguments(cases, self.recordings, **execution)
        table, arguments = map(
            pd.concat, zip((self.table, self.arguments), tables, strict=True)
        )
        settings = at_sizes(self.settings, (table, arguments))
        return replace(self, read=read, settings=settings, table=table, arguments=arguments)

    @cached_property
    def card(self) -> Card | None:
        """Which way to use in that model; None without one."""
        if self.shape is None:
            return None
        return find_card(
            self.settings.policies,
            (self.table, self.arguments),
            self.tokens,
            self.shape,
            self.target,
            self.unit,
            self.read,
            self.today,
            least_lengths(self.recordings),
            own_tokens=self.counts_as(self.shape),
        )

    @property
    def text(self) -> str:
        return summary_text(self) if self.card is None else card_text(self.card)

    @property
    def tables_text(self) -> str:
        """All tables for a terminal."""
        parts = [self.source, replay_text(self.table, self.baseline)]
        parts += missing_value_notes(transcripts_of(self.recordings))
        if not self.arguments.empty:
            parts.append(forgotten_text(self))
        if self.card is not None:
            parts.append(card_text(self.card))
        return "\n\n".join(filter(None, parts))

    @property
    def record(self) -> dict[str, Any]:
        """The card, or else the means, in values that JSON can hold."""
        if self.card is not None:
            return card_record(self.card)
        # Only objects can be None, which JSON has for NaN.
        means = mean_table(self.table).astype(object)
        rows = means.where(means.notna(), None).to_dict("records")
        return {"source": self.source, "unit": self.unit, "means": rows}

    def lost(self, policy: str, budget: int) -> pd.DataFrame:
        """Return what a policy forgot at a budget."""
        lost = self.forgotten
        return lost[(lost.policy == policy) & (lost.budget == budget)]


def at_sizes(settings: Replay, tables: Tables) -> Replay:
    """Return the settings with the budgets that ran."""
    ran = tuple(sorted({*tables[0].budget.tolist()}))
    return replace(settings, budgets=ran) if ran and ran != settings.budgets else settings


def prompt_size(recordings: Sequence[Recording]) -> Callable[[Transcript], int] | None:
    """Return what counts the tokens of a dialog's system prompt, as sizes are; None for words."""
    encoding = getattr(recordings, "encoding", None)
    return None if encoding is None else encoding.tokens.prompt_size


def replay_grid(
    replayed: pd.DataFrame, baseline: str, metric: str = "", width: int | None = None
) -> Grid:
    """Return the means of a replay by policy and budget, of one metric or of all.

    Where the `width` is too small for intervals, these are left out. The full cache and policies
    that see the future compete for no place.
    """
    rows = replayed if not metric else replayed[replayed.metric == metric]
    competing = usable(map(read_policy, rows.policy.unique()))
    places = first_places(rows[rows.policy.isin([policy.name for policy in competing])])
    table = mean_table(rows)
    paired = paired_differences(rows, baseline)
    order = dict.fromkeys(rows.metric)
    # With no row at first, as there may be none at all.
    table = pd.concat([table[:0], *(table[table.metric == name] for name in order)])
    headings = [*map(_heading, table.metric, table.n.astype(int))]
    names = ["policy"] if metric else ["metric", "policy"]
    labelled = table.assign(metric=headings)
    label = "budget {}".format
    grid = pivot(labelled, marked(table, paired, places), names, label=label)
    if width is None or grid.within(width) is grid:
        return grid
    table = table.assign(ci_low=np.nan, ci_high=np.nan)
    return pivot(labelled, marked(table, paired, places), names, label=label)


def _heading(metric: str, dialogs: int) -> str:
    """Return a metric with its unit, and over how many dialogs its means are."""
    return f"{late_metric(metric).heading(metric)}, {count(dialogs, 'dialog')}"


def replay_text(replayed: pd.DataFrame, baseline: str) -> str:
    """Return the means of a replay, a column per budget."""
    return (
        "Means over dialogs by budget, with the 95 % interval, which is\n"
        f"{over_clusters(int(replayed.services.nunique()))};\n"
        f"{marks_sentence(baseline)}\n\n"
        f"{replay_grid(replayed, baseline).text(grouped=True)}"
    )


def sources_grid(by_source: pd.DataFrame, settings: Replay, budget: int) -> Grid:
    """Return the recall of each policy by source and age."""
    rows = by_source[by_source.budget == budget]
    table = rows.assign(
        metric="call_recall",
        source=rows.source.map(SOURCE_LABELS),
        mentioned=rows.age.map(AGE_LABELS),
    )
    titles = {policy.name: policy.title for policy in settings.policies}
    grid = pivot(table, figures(table), ["source", "mentioned"], "policy", titles.__getitem__)
    counted = table.drop_duplicates(["source", "mentioned"]).astype(str)
    counts = {
        "arguments": counted.arguments.tolist(),
        "dialogs": counted.n.tolist(),
        "clusters": counted.services.tolist(),
    }
    return grid.beside(counts)


def forgotten_text(run: ReplayRun) -> str:
    """Return the recall by source and age, and the values whose loss was worst.

    Of the card's way; by default, of the last policy at the middle budget.
    """
    budgets = sorted(run.settings.budgets)
    budget = budgets[len(budgets) // 2]
    policy = run.settings.policies[-1].name
    best = None if run.card is None else run.card.main_way
    if best is not None:
        budget = best.tried
        policy = best.policy
    parts = [
        f"Call-argument recall % by source and age at budget {budget}, with 95 % intervals",
        sources_grid(run.sources, run.settings, budget).text(grouped=True),
    ]
    lost = run.lost(policy, budget)
    if len(lost):
        parts.append(
            f"What {policy} forgot at budget {budget}: {count(len(lost), 'argument')}, the worst "
            "losses first"
        )
        losses = worst_losses(lost)
        losses = losses.assign(value=losses.value.str[:40])
        cells = losses[[*LOSS_COLUMNS]].astype(str).to_numpy().tolist()
        parts.append(Grid([*LOSS_COLUMNS.values()], cells, 4).text())
    return "\n\n".join(parts)


def summary_text(run: ReplayRun) -> str:
    """Return what was asked for, in few lines: the recall of calls, and the metrics chosen."""
    measured = run.table.dropna(subset="value").groupby("metric", sort=False).dialog.nunique()
    metrics = [*measured.index[:1]]
    if "call_recall" in measured:
        metrics = ["call_recall"]
    for name in measured.index:
        if late_metric(name).key in run.settings.metrics:
            metrics.append(name)
    parts = [f"{run.source}; sizes in {run.unit}" if run.unit == WORDS_OF else run.source]
    for name in dict.fromkeys(metrics):
        parts.append(_heading(name, int(measured[name])))
        parts.append(replay_grid(run.table, run.baseline, name, width=WIDTH).text())
    parts += missing_value_notes(transcripts_of(run.recordings))
    parts += ["\n".join(wrap(f"{marks_sentence(run.baseline)}; {FULL_GRID}", WIDTH))]
    return "\n\n".join(parts)


def card_text(card: Card) -> str:
    """Return the card for a terminal: at most `LINES` of `WIDTH` columns."""
    lines = []
    if (loss := card.today) is not None:
        limit = count(loss.today.tokens, "token")
        lines += wrap(f"Today: {limit} by {loss.today.preset.label}.", WIDTH)
    for words in card_sentences(card):
        lines += wrap(words, WIDTH)
    if card.clusters or card.read is not None:
        grid = short_grid(card).within(WIDTH)
        lines += ["", *grid.text().splitlines(), ""] if grid.rows else []
        lines += wrap(table_note(card), WIDTH)
    for engine, setting in settings(card).items():
        # Comments come first; those that engines share are printed once.
        comment, *code = setting.splitlines()
        comments = [comment, *(line for line in code if line.startswith("# "))]
        lines += [f"# {engine}", *(line for line in comments if line not in lines)]
        for line in code[len(comments) - 1 :]:
            lines += wrap(line, WIDTH, **UNBROKEN)
    return "\n".join(lines)
