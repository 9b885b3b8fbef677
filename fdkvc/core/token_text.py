"""The text of a dialog as tokens: where each token stands, and what follows from the text alone."""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import KINDS, SPEAKERS, Floats, Ints, word_id
from fdkvc.core.token_traits import text_surprisal, token_traits
from fdkvc.core.transcripts import Mention, SpanKind, word_ids


class TurnTokens(NamedTuple):
    """A turn as tokens."""

    text: str
    spans: NDArray[Any]
    """The first character of each token, and the one after its last (n, 2)."""
    kind: SpanKind
    """Of what follows the calls."""
    is_user: bool
    """Whether a user speaks."""
    called: int = 0
    """Number of characters at the start of the text that are calls, each a line."""
    tools: tuple[str, ...] = ()
    """The tools of the calls, or the one whose result it is; "" where unknown."""

    @property
    def is_call(self) -> NDArray[np.bool_]:
        """Whether each token is of a call (n,)."""
        return self.spans[:, 0] < self.called

    @property
    def tool_ids(self) -> Ints:
        """`word_id` of the tool of each token (n,), 0 for none."""
        # The final 0 is for lines beyond the named tools.
        ids = np.zeros(len(self.tools) + 1, np.intp)
        for index, name in enumerate(self.tools):
            ids[index] = word_id(name) if name else 0
        breaks = [match.start() for match in re.finditer("\n", self.text[: self.called])]
        # Each call is a line; the tokens of a result, which begins the text, are on line 0.
        line = np.searchsorted(breaks, np.minimum(self.spans[:, 0], self.called))
        of_tool = self.is_call | (self.kind == "result")
        return np.where(of_tool, ids[np.minimum(line, len(self.tools))], 0)


@dataclass(frozen=True, eq=False)
class TokenText:
    """N tokens of some turns, with what a policy may look at of their text."""

    turns: tuple[TurnTokens, ...]

    def __len__(self) -> int:
        return self.starts[-1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The index of each turn's first token, and of the token after the last."""
        lengths = [len(turn.spans) for turn in self.turns]
        return tuple(accumulate(lengths, initial=0))

    @cached_property
    def born(self) -> Ints:
        """The turn of each token (N,)."""
        return np.repeat(np.arange(len(self.turns)), np.diff(self.starts))

    @property
    def speakers(self) -> Ints:
        """Speaker of each token (N,), as an index into `SPEAKERS`."""
        speakers = []
        for turn in self.turns:
            speaker = "user" if turn.is_user else "system"
            speakers.append(SPEAKERS.index("prompt" if turn.kind == "system" else speaker))
        return np.array(speakers, np.intp)[self.born]

    @cached_property
    def kinds(self) -> Ints:
        """Kind of each token (N,), as an index into `KINDS`."""
        kinds = [KINDS.index(turn.kind) for turn in self.turns]
        of_turn = np.array(kinds, np.intp)[self.born]
        is_call = np.concatenate([turn.is_call for turn in self.turns])
        return np.where(is_call, KINDS.index("call"), of_turn)

    @cached_property
    def tools(self) -> Ints:
        """`word_id` of the tool of each call and result (N,), 0 for none."""
        return np.concatenate([turn.tool_ids for turn in self.turns])

    @cached_property
    def words(self) -> Ints:
        """`word_id` of each token's word (N,), 0 for none."""
        ids = []
        for turn in self.turns:
            ids += word_ids(turn.text, turn.spans)
        return np.array(ids, np.intp)

    @property
    def surprisal(self) -> Floats:
        """Surprisal of each token (N,), of a word's frequency: see `text_surprisal`."""
        texts = []
        for turn in self.turns:
            texts += [turn.text[start:end] for start, end in turn.spans.tolist()]
        return np.array([*map(text_surprisal, texts)], np.float32)

    @cached_property
    def traits(self) -> Floats:
        """Traits of each token (N, F); see `token_traits`."""
        traits = (token_traits(turn.text, turn.spans, turn.is_user) for turn in self.turns)
        return np.concatenate([*traits])

    def tokens_of(self, mention: Mention) -> Ints:
        """Return the indices of the tokens that cover any of a mention's characters."""
        start, end, last_end, next_start = self._edges[mention.turn]
        # Tokens may overlap, so the range is found by bounds that only grow.
        low = int(np.searchsorted(last_end, mention.start, "right"))
        high = int(np.searchsorted(next_start, mention.end))
        covered_from = np.maximum(start[low:high], mention.start)
        covered_to = np.minimum(end[low:high], mention.end)
        return self.starts[mention.turn] + low + np.flatnonzero(covered_from < covered_to)

    @cached_property
    def _edges(self) -> list[NDArray[Any]]:
        """By turn, tokens' starts and ends, largest end so far and least start to come (4, n)."""
        edges = []
        for turn in self.turns:
            start, end = turn.spans.T
            last_end = np.maximum.accumulate(end)
            next_start = np.minimum.accumulate(start[::-1])[::-1]
            edges.append(np.stack([start, end, last_end, next_start]))
        return edges
