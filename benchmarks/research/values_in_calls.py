"""Whether a model knows a value that only an earlier call still has.

    python -m benchmarks.research.values_in_calls TOOLTALK.json [COUNT]

SmolLM2 reads COUNT conversations, drawn by a seed, of which 192 tokens stay after each turn: the
first four and the newest, or those of the newest messages. Of each value that a call needs and that
it gets right with the full cache, the tokens that stayed are searched for the value, word for word.
Prints how many are right, by the kind of messages that still had the value.
"""

import random
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.conversations.formats import read_dialogs
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.core.statistics import cluster_share
from fdkvc.core.words import percent
from fdkvc.models import answers
from fdkvc.models.answers import AnswerReader, Answers, Requests, run_answers
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.text_cache import TextCache
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies import read_policy

POLICIES, ENTRIES, MAX_LENGTH = ("sink", "messages(fifo)"), 192, 2_500
"""The ways, the tokens that stay, and those of a conversation at most."""

ROWS: list[dict[str, object]] = []
"""A row for each value and way."""


class PlaceReader(AnswerReader):
    """Notes of each value where it still stood when its call was written."""

    calls: tuple[tuple[int, int], ...] = ()
    """Where the calls of the text are, in tokens."""

    def read_passage(self, passage: EncodedPassage, *, is_turn: bool = True) -> Requests[None]:
        """Read a passage, and note where its call is."""
        start = self.caches[0].count
        yield from super().read_passage(passage, is_turn=is_turn)
        if passage.passage.call is not None:
            self.calls = (*self.calls, (start, start + len(passage.ids)))

    def _grade_values(self, passage: EncodedPassage, likeliest: NDArray[np.intp]) -> None:
        first = len(self.right["values_right"])
        super()._grade_values(passage, likeliest)
        call = passage.passage.call
        assert call is not None
        pairs = zip(call.arguments, passage.passage.spans, strict=True)
        values = [argument.value for argument, span in pairs if passage.tokens_of(*span)]
        start = self.caches[0].count - len(passage.ids)
        for number, policy in enumerate(POLICIES, start=1):
            texts = self._held_texts(number, start)
            for value, right in zip(values, self.right["values_right"][first:], strict=True):
                places = [place for place, text in texts.items() if str(value).lower() in text]
                if right[0, 0]:  # with the full cache
                    row = {"policy": policy, "place": next(iter(places), "nothing")}
                    dialog = {"dialog": self.transcript.name, "services": self.transcript.services}
                    ROWS.append(row | dialog | {"right": right[number, 0]})

    def _held_texts(self, number: int, start: int) -> dict[str, str]:
        """Return what stayed of messages and results, and of calls, before a place."""
        cache = self.caches[number]
        assert isinstance(cache, TextCache)
        held = np.arange(start)
        if cache.attended is not None:
            earlier = cache.attended[0, 0]  # alike in all heads
            held = np.union1d(earlier[earlier >= 0], np.arange(cache.turn_start, start))
        in_call = np.zeros(start, bool)
        for begin, end in self.calls:
            in_call[begin:end] = True
        texts = {}
        for place, places in (
            ("a message or result", held[~in_call[held]]),
            ("an earlier call", held[in_call[held]]),
        ):
            runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
            parts = [self.model.tokens.text([cache.ids[at] for at in run]) for run in runs]
            texts[place] = "\0".join(parts).lower()
        return texts


def main(file: Path, count: int = 40) -> None:
    """Read a file's conversations and print the table."""
    dialogs, _ = read_dialogs(read_bytes(str(file), MAX_DIALOG_FILE_BYTES), file.name)
    model = NamedModel("smollm2").answering_model
    short = [
        row for row in dialogs if row.calls and sum(model.tokens.count_by_turn(row)) < MAX_LENGTH
    ]
    drawn = random.Random(0).sample(short, min(count, len(short)))
    settings = Answers((*map(read_policy, POLICIES),), (ENTRIES,), decides="model")
    with patch.object(answers, "AnswerReader", PlaceReader):
        run_answers(settings, model, drawn, workers=1)
    for (policy, place), rows in pd.DataFrame(ROWS).groupby(["policy", "place"]):
        by_dialog = rows.groupby(["dialog", "services"]).right.agg(["mean", "size"]).reset_index()
        clusters = [str(services) for services in by_dialog.services]
        ends = cluster_share(by_dialog["mean"], clusters, len(rows), by_dialog["size"])
        low, high = map(percent, ends)
        share = f"{percent(rows.right.mean())} ({low} to {high})"
        print(
            f"{policy}, {place}: {rows.right.sum()} of {len(rows)} right, {share}, "
            f"{len(by_dialog)} dialogs, {len(set(clusters))} clusters"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
