"""What a compaction cost and saved, in tokens of a prefix cache, and when it paid.

Without it, each request after it would have read the text before from the cache. With it,

1. one more request reads that text and writes the summary (an answer's tokens);
2. the first request writes to the cache what follows the first change, and reads what is before;
3. each further request reads what stayed;
4. what was read again because it had left is written once, and read by each further request.

A request that comes later after the one before than the cache lives writes its whole text again.
Everything else costs the same with it and without, as if the text before still fitted the model.
Without times in the log, the cache is taken to be warm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PRICED = "assumed model: Claude Opus 5, list prices of 29 November 2026, a cache of 5 minutes"
"""What the default prices are (platform.claude.com/docs/en/about-claude/pricing)."""


@dataclass(frozen=True)
class Prices:
    """Dollars for a million tokens."""

    write: float = 6.25
    """Written to the prefix cache."""
    read: float = 0.5
    """Read from it."""
    output: float = 25.0
    """Written by the model."""
    minutes: float = 5.0
    """How long the cache lives after a request; the price of writing depends on it."""
    source: str = PRICED
    """Words on where they are from."""

    @classmethod
    def of(cls, text: str) -> Prices:
        """Read prices such as ``6.25,0.5,25``, or ``10,0.5,25,60`` with the minutes of the cache.

        Raises a ValueError if they are no three or four numbers.

        Examples
        --------
        >>> Prices.of("3.75,0.3,15").read
        0.3
        """
        try:
            numbers = [*map(float, text.split(","))]
        except ValueError:
            numbers = []
        if len(numbers) not in (3, 4) or not all(0 <= price < 1e6 for price in numbers):
            raise ValueError(
                f"prices {text!r} must be three numbers with commas, such as 6.25,0.5,25: dollars "
                "for a million tokens written to the cache, read from it, and answered; a fourth "
                "is the minutes that the cache lives"
            )
        write, read, output, minutes = [*numbers, cls.minutes][:4]
        return cls(write, read, output, minutes, f"prices {text}")


LIST_PRICES = Prices()
"""The default prices."""


@dataclass(frozen=True)
class Rewrite:
    """A text in the prefix cache that became shorter, and the requests that followed."""

    text: int
    """Its tokens before."""
    stays: int
    """Its tokens after."""
    changed: int
    """Of these, the tokens from the first change on."""
    summary: int
    """Tokens that a model wrote for it in a request of its own; 0 if there was none."""
    requests: int
    """Requests that followed."""
    returned: tuple[tuple[int, int], ...] = ()
    """Which request first had tokens that came back, from 1, and how many."""
    gaps: tuple[float, ...] = ()
    """Seconds from the request before to the one that wrote the summary, and to each further one;
    missing ones are 0."""

    def costs(self, prices: Prices) -> list[tuple[float, float]]:
        """Return the dollars with it and without, after each request that followed."""
        returned = Counter[int]()
        for request, tokens in self.returned:
            returned[request] += tokens
        # One more than requests: the first is before the request that wrote the summary.
        gaps = [*self.gaps, *[0.0] * (self.requests + 1 - len(self.gaps))]
        reading = [prices.write if gap > 60 * prices.minutes else prices.read for gap in gaps]
        # Without it there is no request for a summary, so the first gap is longer.
        is_late = gaps[0] + gaps[1] > 60 * prices.minutes if self.requests else False
        spent = alternative = 0.0
        if self.summary:
            spent = self.text * reading[0] + self.summary * prices.output
        elif is_late:
            reading[1] = prices.write
        context = self.stays
        changed = self.changed
        rows = []
        for request, read in enumerate(reading[1:], start=1):
            spent += (context - changed) * read + (changed + returned[request]) * prices.write
            alternative += self.text * (prices.write if request == 1 and is_late else read)
            context += returned[request]
            changed = 0
            rows.append((spent / 1e6, alternative / 1e6))
        return rows

    def expired(self, prices: Prices) -> int:
        """Return how many of the requests came when the cache had expired."""
        return sum(gap > 60 * prices.minutes for gap in self.gaps)

    def paid_after(self, prices: Prices) -> int:
        """Return the requests after which it had paid for good; 0 if it had not."""
        paid = 1
        for request, (spent, alternative) in enumerate(self.costs(prices), start=1):
            if spent > alternative:
                paid = request + 1
        return paid if paid <= self.requests else 0


def returned_tokens(
    rows: Sequence[tuple[int, int]], answers: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return (request, tokens) of tokens that came back in messages, by the next request.

    `rows` are (message, tokens), `answers` the messages with an answer to a request, in order.
    """
    placed = ((bisect_left(answers, message) + 1, tokens) for message, tokens in rows)
    return tuple(row for row in placed if row[0] <= len(answers))
