"""Replays: the dialogs of a file, or a trace, under policies and budgets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Self, Unpack

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
from fdkvc.conversations.trace_file import ENDING
from fdkvc.core.parameters import SEED
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import over_clusters
from fdkvc.core.transcripts import CALLS_NOTE
from fdkvc.core.words import count
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import first_places, mean_table, paired_differences
from fdkvc.explain.notes import missing_value_notes, unread_kinds
from fdkvc.policies import baseline_of, read_policy, usable
from fdkvc.runs.base import Run
from fdkvc.runs.grid import Grid, figures, marked, marks_sentence, pivot
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record
from fdkvc.verdict.model_shape import ModelShape
from fdkvc.verdict.plan import TARGETS, Verdict, dialog_lengths, find_verdict, plan_table

OF_HEADS = {"each": "", "together": ", heads together", "kv": ", by KV head"}
"""Suffixes of a policy's name, by which heads decide together."""

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

OF_LETTERS = (
    "Without a model's vectors, policies that use attention compare the letters of words, not "
    "their meaning."
)
"""What limits a verdict on lexical vectors."""


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
        "vectors": str | None,
        "unread": dict[str, int] | None,
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
    """Of the model of a plan."""
    target: float = TARGETS[1]
    """The recall that a plan is to reach."""
    vectors: str | None = None
    """In links to the page Dialogs: the model that read the file there, and its layers."""

    checked: str = ""
    """What a model said of the verdict."""

    def __post_init__(self) -> None:
        if not self.baseline:
            object.__setattr__(self, "baseline", baseline_of(self.settings.policies))

    @classmethod
    def measure(
        cls,
        settings: Replay,
        recordings: Sequence[Recording],
        about: dict[str, Any],
        **how: Unpack[Execution],
    ) -> Self:
        """Run a replay; `about` has the other fields by name."""
        began = perf_counter()
        table, arguments = replay_arguments(settings, recordings, **how)
        return cls(settings, recordings, table, arguments, perf_counter() - began, **about)

    @classmethod
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        about, name = record.about, record.about.get("name")
        if about.get("vectors"):
            raise ValueError(
                "this run has vectors of a model that only the page Dialogs reads: run it there, "
                f"with {about['vectors']} in its address"
            )
        source = about["source"]
        named = Path(name or "").suffix == ENDING
        traced = bool(sources.trace) or not source.startswith(LEXICAL) or named
        kind = "trace" if traced else "dialogs"
        sources = replace(sources.named_in_run(kind, name), seed=about["seed"])
        sources = replace(sources, calls=not traced and CALLS_NOTE in source)
        recordings, digest = sources.read_recordings()
        if digest != about["file"]:
            raise ValueError(OTHER_FILE[kind])
        recordings = recordings[: max(1, about["dialogs"])]
        again = {key: about.get(key) for key in ("name", "seed", "shape", "baseline")}
        return cls.measure(record.settings, recordings, again | {"digest": digest}, **how)

    @property
    def about(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "name": self.name,
            "file": self.digest,
            "seed": self.seed,
            "dialogs": int(self.table.dialog.nunique()),
            "baseline": self.baseline,
            "shape": self.shape,
            "vectors": self.vectors,
            "unread": unread_kinds(transcripts_of(self.recordings)) or None,
        }

    @cached_property
    def source(self) -> str:
        """What computed the vectors, in words."""
        return self.recordings[0].source

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
        if self.shape is not None:
            tables["plan.csv"] = plan_table(self.settings, self.table, self.tokens, self.shape)
        return tables

    @property
    def text(self) -> str:
        parts = [self.source, replay_text(self.table, self.baseline)]
        parts += missing_value_notes(transcripts_of(self.recordings))
        chosen = None
        if self.shape is not None:
            chosen = self.verdict(self.shape, self.target)
        if not self.arguments.empty:
            parts.append(forgotten_text(self, chosen))
        if chosen is not None:
            parts += [chosen.sentence, self.checked, chosen.caution]
        return "\n\n".join(filter(None, parts))

    def verdict(self, shape: ModelShape, target: float) -> Verdict:
        """Return which policy and budget to use in a model of this shape, in words."""
        found = find_verdict(self.settings, self.table, self.arguments, self.tokens, shape, target)
        of_letters = found.policy and self.source.startswith(LEXICAL)
        return replace(found, caution=f"{found.caution} {OF_LETTERS}") if of_letters else found

    def lost(self, policy: str, budget: int) -> pd.DataFrame:
        """Return what a policy forgot at a budget, of the first mode of the heads."""
        lost = self.forgotten
        chosen = (lost.policy == policy) & (lost.budget == budget)
        return lost[chosen & (lost.heads == self.settings.heads[0])]


def replay_grid(
    replayed: pd.DataFrame, baseline: str, metric: str = "", title: Callable[[str], str] = str
) -> Grid:
    """Return the means of a replay by policy and budget, of one metric or of all.

    `title` is that of a policy. The full cache and policies that see the future compete for no
    place.
    """
    rows = replayed if not metric else replayed[replayed.metric == metric]
    competing = usable(map(read_policy, rows.policy.unique()))
    places = first_places(rows[rows.policy.isin([policy.name for policy in competing])])
    table, paired = mean_table(rows), paired_differences(rows, baseline)
    order = dict.fromkeys(rows.metric)
    table = pd.concat([table[:0], *(table[table.metric == name] for name in order)])
    over = [
        f"{late_metric(name).heading(name)}, {count(int(n), 'dialog')}"
        for name, n in zip(table.metric, table.n, strict=True)
    ]
    named = table.policy.map(title) + table.heads.map(OF_HEADS)
    names = ["policy"] if metric else ["metric", "policy"]
    words = marked(table, paired, places)
    table = table.assign(metric=over, policy=named)
    return pivot(table, words, names, label="budget {}".format)


def replay_text(replayed: pd.DataFrame, baseline: str) -> str:
    """Return the means of a replay, a column per budget."""
    return (
        "Means over dialogs by budget, with the 95 % interval, which is\n"
        f"{over_clusters(int(replayed.services.nunique()))};\n"
        f"{marks_sentence(baseline)}\n\n"
        f"{replay_grid(replayed, baseline).text(grouped=True)}"
    )


def sources_grid(by_source: pd.DataFrame, settings: Replay, budget: int) -> Grid:
    """Return the recall of each policy by source and age, of the first mode of the heads."""
    rows = by_source[(by_source.budget == budget) & (by_source.heads == settings.heads[0])]
    table = rows.assign(
        metric="call_recall",
        source=rows.source.map(SOURCE_LABELS),
        mentioned=rows.age.map(AGE_LABELS),
    )
    titles = {policy.name: policy.title for policy in settings.policies}
    grid = pivot(table, figures(table), ["source", "mentioned"], "policy", titles.__getitem__)
    counted = table.drop_duplicates(["source", "mentioned"]).astype(str)
    names = {"arguments": "arguments", "dialogs": "n", "clusters": "services"}
    return grid.beside({name: counted[column].tolist() for name, column in names.items()})


def forgotten_text(run: ReplayRun, chosen: Verdict | None = None) -> str:
    """Return the recall by source and age, and the values whose loss was worst.

    Of a verdict's policy and budget; by default, of the last policy at the middle budget.
    """
    budgets = sorted(run.settings.budgets)
    budget, policy = budgets[len(budgets) // 2], run.settings.policies[-1].name
    if chosen is not None and chosen.policy:
        budget, policy = chosen.budget, chosen.policy
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
        losses = losses.assign(value=losses.value.str[:40])[[*LOSS_COLUMNS]].astype(str)
        parts.append(Grid([*LOSS_COLUMNS.values()], losses.to_numpy().tolist(), 4).text())
    return "\n\n".join(parts)
