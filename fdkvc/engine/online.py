"""The same policies as a cache for a stream of turns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.core.arrays import check_surprisal, check_vectors, check_whole
from fdkvc.core.attention import TRAITS, Floats, Ints
from fdkvc.core.cache import joined
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import check_count
from fdkvc.engine.simulate import initial_state, take_turn
from fdkvc.engine.trace import State, computed_state
from fdkvc.policies.base import Policy


@dataclass(frozen=True, eq=False)
class OnlineTurn:
    """The result of one turn."""

    output: Floats
    """Shape (h,). The context output: attention over the kept entries."""
    kept_tokens: Ints
    """Shape (k,). Ids of the cached tokens, older first; ids count the tokens of the stream from
    0."""
    attention: Floats
    """Shape (k,). Attention weight of each kept token."""


@dataclass(frozen=True, eq=False)
class _Slots(DialogBatch):
    """The slots of a stream, followed by the tokens of its turn: a dialog of one turn."""

    # Given, because a token's turn does not follow from the bounds of this one turn.
    born: Ints = field(kw_only=True)


class OnlineCache:
    """A cache with a policy and a budget for one stream of turns.

    It holds the vectors of the kept tokens, and no others. Raises a ValueError
    for a budget below 1, or a policy that looks at the future.

    The attribute `fed` is the number of tokens fed so far, and so the next token's id. Set it
    before the first turn to continue a stream.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> cache = OnlineCache(policy_named("fifo"), budget=3)
    >>> vectors = np.eye(4)
    >>> turn = cache.feed(queries=vectors, keys=vectors, values=vectors, embeddings=vectors)
    >>> turn.kept_tokens.tolist()
    [1, 2, 3]
    """

    def __init__(self, policy: Policy, budget: int) -> None:
        if "future" in policy.looks_at:
            raise ValueError(
                f"{policy.label} looks at the future of the dialog, which a stream does not have"
            )
        self.policy = policy
        self.budget = check_count("budget", budget)
        self.fed = 0
        self._state: State | None = None
        self._turns = 0
        # By name, columns of the token in each slot.
        self._columns: dict[str, NDArray[Any]] = {}

    def feed(
        self,
        *,
        queries: ArrayLike,
        keys: ArrayLike,
        values: ArrayLike,
        embeddings: ArrayLike,
        surprisal: ArrayLike | None = None,
        traits: ArrayLike | None = None,
        words: ArrayLike | None = None,
        speakers: ArrayLike | None = None,
        kinds: ArrayLike | None = None,
        tools: ArrayLike | None = None,
    ) -> OnlineTurn:
        """Process the tokens of one turn; after an error the cache is as before.

        Raises a ValueError if shapes differ from each other or from earlier turns, a number is not
        finite, or the policy needs surprisal that is missing.

        Parameters
        ----------
        queries, keys, values : array (n, h)
        embeddings : array (n, d)
        surprisal : array (n,), optional
            −log of the probability of each token, in nats, for a policy that needs it.
        traits : array (n, F), optional
            `fdkvc.core.attention.TRAITS` of each token, as `fdkvc.core.token_traits` makes them of
            a turn's text, for a policy that looks at words. Without them `learned` decides by age
            alone, as in dialogs without words.
        words, speakers : array (n,) of int, optional
            `fdkvc.core.attention.word_id` of each token's word, 0 for none, and who says it, as an
            index into `fdkvc.core.attention.SPEAKERS`, for a whitelist.
        kinds, tools : array (n,) of int, optional
            Who or what wrote each token, as an index into `fdkvc.core.attention.KINDS`, −1 where
            unknown, and `fdkvc.core.attention.word_id` of the name of the tool of a call or result,
            0 for none.
        """
        # 1. Check the columns of the new tokens.
        vectors = {
            "queries": queries,
            "keys": keys,
            "values": values,
            "embeddings": embeddings,
        }
        numbers = {"words": words, "speakers": speakers, "kinds": kinds, "tools": tools}
        new_columns = self._checked(vectors, traits, surprisal, numbers)
        stored_columns = self._columns or self._empty_columns(new_columns)
        # A column that comes or goes would leave tokens without it.
        missing = sorted(stored_columns.keys() ^ new_columns.keys())
        if missing:
            raise ValueError(
                f"{missing[0]} must be given in every turn of a stream, or in none"
            )

        # 2. Run one turn of a dialog that is the slots followed by the new tokens.
        slots = len(stored_columns["keys"])
        count = len(new_columns["keys"])
        capacity = self.policy.capacity(self.budget, slots + count)
        columns: dict[str, Any] = joined([stored_columns, new_columns])
        dialog = _Slots(
            **{name: array[None] for name, array in columns.items()},
            bounds=np.array([[slots, slots + count]]),
            turn_counts=np.array([1]),
            topic_bits=np.zeros((1, slots + count), np.uint32),
            current=np.array([[-1]]),
            topic_names=(),
        )
        turn = dialog.observe(0)
        width = dialog.keys.shape[2]
        state = self._state or initial_state(self.policy, 1, self.budget, width)
        state = take_turn(self.policy, state, turn, capacity).end_state

        # 3. Store the columns of the tokens that are left, renumbered by their slots.
        slot = state.cache.token[0]
        filled = slot >= 0  # an empty slot, −1, copies the last column, which nothing reads
        self._columns = {name: array[slot] for name, array in columns.items()}
        self.fed += count
        self._turns += 1
        renumbered = np.where(filled, np.arange(len(slot)), -1)[None]
        self._state = computed_state(replace(state.cache, token=renumbered), state.attended)
        ids = self._columns["positions"]
        attention = state.attended.modulated_weights[0, filled]
        # Copied, so that a caller who changes it does not change the state.
        return OnlineTurn(state.attended.output[0].copy(), ids[filled], attention)

    def _checked(
        self,
        vectors: Mapping[str, ArrayLike],
        traits: ArrayLike | None,
        surprisal: ArrayLike | None,
        numbers: Mapping[str, ArrayLike | None],
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of a turn's tokens; parameters and errors are those of `feed`."""
        columns: dict[str, NDArray[Any]] = {}
        for name, array in vectors.items():
            columns[name] = check_vectors(name, array, 2)
        if traits is not None:
            columns["traits"] = check_vectors("traits", traits, 2)
        self._check_shapes(columns)
        count = len(columns["keys"])
        if surprisal is not None:
            columns["surprisal"] = check_surprisal(surprisal, count)
        for name, column in numbers.items():
            if column is not None:
                columns[name] = check_whole(name, column, count)
        columns["positions"] = np.arange(self.fed, self.fed + count)
        columns["born"] = np.full(count, self._turns)
        return columns

    def _empty_columns(
        self, new_columns: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return columns like those of the first turn's tokens for empty slots."""
        columns = {}
        for name, array in new_columns.items():
            columns[name] = np.zeros((self.budget, *array.shape[1:]), array.dtype)
        return columns

    def _check_shapes(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Raise a ValueError unless shapes fit each other and those of earlier turns."""
        count, width = columns["keys"].shape
        widths = {"queries": width, "values": width, "traits": len(TRAITS)}
        widths |= {name: array.shape[-1] for name, array in self._columns.items()}
        for name, array in columns.items():
            if len(array) != count:
                raise ValueError(f"{name} hold {len(array)} tokens, but keys hold {count}")
            expected = widths.get(name, array.shape[1])
            if array.shape[1] != expected:
                raise ValueError(
                    f"{name} have {array.shape[1]} dimensions, but must have {expected}"
                )
