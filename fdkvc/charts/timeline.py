"""A metric over the turns of a run, as a line."""

import math
from dataclasses import dataclass

from fdkvc.core.words import decimal, percent


@dataclass(frozen=True)
class Line:
    """A line over the turns, with its axis and its format."""

    field: str
    """The column of its values."""
    label: str
    """Its title."""
    low: float
    """Where its axis begins."""
    high: float
    """Where its axis ends."""
    start: float | None = None
    """A level to mark."""
    percent: bool = False
    """Whether values are fractions, written as percentages."""
    digits: int = 3
    """Decimals of a value that is not a percentage."""

    def words(self, value: float) -> str:
        """Write a value for people to read; a dash if it is missing."""
        if math.isnan(value):
            return "–"
        return percent(value, 1) if self.percent else decimal(value, self.digits)
