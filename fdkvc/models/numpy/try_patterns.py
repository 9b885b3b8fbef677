"""Splits texts by a tokenizer's regular expressions, in a process of its own: some take too long.

It reads a list of patterns as JSON from stdin. Whoever starts it stops it after a while.
"""

import json
import re
import sys

from tokenizers import Regex, pre_tokenizers

CHARACTERS = 5000
"""Of a text with one piece again and again."""

LINES = 50
"""Of a text that repeats a piece once more in each line."""

PIECES = [
    "a",
    "A",
    "é",
    "中",
    "1",
    ".",
    " ",
    "\n",
    "a ",
    "a1",
    ". ",
    "It's 9 o'clock, café!\n ",
]
"""What the texts repeat, beside the letters of a pattern."""


def main() -> None:
    """Split texts of a few thousand characters by each pattern."""
    for pattern in json.load(sys.stdin):
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        letters = dict.fromkeys(re.findall(r"\w", pattern))
        for piece in [*PIECES, *list(letters)[:30]]:
            # A last character that no piece has makes a pattern go back and try all other ways.
            split.pre_tokenize_str(piece * (CHARACTERS // len(piece)) + "\0")
            lines = ("-" * 100 + piece * count for count in range(LINES))
            split.pre_tokenize_str("\n".join(lines))


if __name__ == "__main__":
    main()
