"""Answers: what a language model loses where a policy evicts from its cache; also ``live``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, ClassVar, Unpack

import pandas as pd

from fdkvc.conversations.sources import OTHER_FILE, Sources, skipped_text
from fdkvc.core.statistics import over_clusters
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.engine.metrics import METRICS, metrics_of
from fdkvc.engine.summary import first_places, mean_table, paired_differences
from fdkvc.explain.notes import unread_kinds
from fdkvc.models.answers import FULL, TOKENS_REREAD, Answers, readable, run_answers
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.runs.base import Run
from fdkvc.runs.console import warn_each
from fdkvc.runs.grid import marked, marks_sentence, pivot
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record, digest, run_json


@dataclass(frozen=True, eq=False)
class AnswersRun(Run):
    """What a model's answers lose."""

    kind = "answers"
    settings_type = Answers
    depends: ClassVar = {
        "model": dict[str, Any],
        "file": str,
        "dialogs": int,
        "baseline": str,
        "unread": dict[str, int] | None,
    }

    settings: Answers
    """The settings of the run."""
    model: AnyModel
    """The model that answered."""
    scores: pd.DataFrame
    """The table that `run_answers` returned."""
    seconds: float
    """How long it took."""
    digest: str
    """The SHA-256 of the file of dialogs."""
    baseline: str = FULL
    """The policy with which others are compared."""
    also_depends: Mapping[str, object] = field(default_factory=dict)
    """What else the numbers depend on, as JSON values."""
    unread: Mapping[str, int] = field(default_factory=dict)
    """The number of parts of the dialogs that were not read, by kind."""
    note: str = ""
    """A sentence on the layers from which the model's cache does not evict."""

    @classmethod
    def measure(
        cls,
        settings: Answers,
        model: AnyModel,
        transcripts: Sequence[Transcript],
        run_fields: dict[str, Any],
        **execution: Unpack[Execution],
    ) -> AnswersRun:
        """Let a model answer dialogs; `run_fields` has the fields that are not measured."""
        began = perf_counter()
        scores = run_answers(settings, model, transcripts, **execution)
        run_fields = {**run_fields, "unread": unread_kinds(transcripts)}
        return cls(settings, model, scores, perf_counter() - began, **run_fields)

    @classmethod
    def again(cls, record: Record, sources: Sources, **execution: Unpack[Execution]) -> Run:
        model = NamedModel(sources.model).answering_model
        if model.digest != record.dependencies["model"].get("digest"):
            raise ValueError("the run used another model: name its folder with --model")
        dialogs, digest = readable_dialogs(model, sources)
        if digest != record.dependencies["file"]:
            raise ValueError(OTHER_FILE)
        run_fields = {"digest": digest, "baseline": record.baseline}
        return cls.measure(record.settings, model, dialogs, run_fields, **execution)

    @property
    def dependencies(self) -> dict[str, Any]:
        model = {"name": self.model.name, "digest": self.model.digest, **self.also_depends}
        if note := self.model.tokens.note:
            model["reads"] = note
        return {
            "model": model,
            "file": self.digest,
            "dialogs": int(self.scores.dialog.nunique()),
            "baseline": self.baseline,
            "unread": self.unread or None,
        }

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The `mean_table` of the scores."""
        return mean_table(self.scores)

    @cached_property
    def paired(self) -> pd.DataFrame:
        """The `paired_differences` from the baseline."""
        return paired_differences(self.scores, self.baseline)

    @cached_property
    def places(self) -> Mapping[tuple[Any, ...], str]:
        """The `first_places`, the full cache left out."""
        return first_places(self.scores[self.scores.policy != FULL])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        return {
            "answers.csv": self.scores,
            "answers_summary.csv": self.summary,
            "answers_paired.csv": self.paired,
        }

    @property
    def text(self) -> str:
        summary = self.summary
        keys = (*metrics_of("answers"), TOKENS_REREAD)
        table = pd.concat([summary[summary.metric == key] for key in keys])
        words = marked(table, self.paired, self.places)
        table = table.assign(metric=[METRICS[key].heading(key) for key in table.metric])
        parts = (
            "\n".join(filter(None, [self.model.name, self.note])),
            f"Means over {count(int(summary.n.max()), 'dialog')} by budget, with the 95 % "
            f"interval, which is {over_clusters(int(summary.services.max()))};\n"
            f"{marks_sentence(self.baseline, self.places)}",
            pivot(table, words, ["metric", "policy"]).text(grouped=True),
        )
        return "\n\n".join(parts)


def answers_key(
    settings: Answers,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    description: Mapping[str, Any],
) -> str:
    """Return a digest of everything that the scores depend on, but the processor.

    An interrupted run goes on from finished results only if this is the same.
    """
    subject = {
        "model": model.digest,
        "file": description["digest"],
        "more": description.get("also_depends"),
    }
    names = [transcript.name for transcript in transcripts]
    return digest(run_json(AnswersRun.kind, settings, (), dialogs=names, **subject))


def readable_dialogs(model: AnyModel, sources: Sources) -> tuple[list[Transcript], str]:
    """Return the dialogs of a file that a model can read, and its SHA-256."""
    transcripts, file = sources.read_transcripts()
    dialogs, skipped = readable(model, transcripts)
    warn_each([skipped_text(skipped)])
    return dialogs, file
