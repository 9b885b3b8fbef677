"""Ask a model for a number in a text of some 2,000 tokens, under caches of 1,024.

    python -m benchmarks.research.needle MODEL OUT.csv [--cases N] [--minutes M]

Made as RULER makes its task of a needle among others (Hsieh et al., 2024): one sentence that is
repeated, four sentences that each name a number for a thing, and a question for one of them. That
one is first or last in the text, the other three are at places drawn by a seed. Policies evict
after every 128 tokens, in each head by itself, and before the answer. An answer is right if it has
the number: the truth is known. Cases go to OUT.csv as they are read, first and last in turn, which
a later run goes on with; after M minutes none is begun. Prints a table with intervals of Wilson's.
"""

import random
from time import monotonic

import pandas as pd
from scipy.stats import binomtest

from benchmarks import options
from fdkvc.models.numpy.chat import generate_passages
from fdkvc.models.numpy.language_model import LanguageModel, shared_language_model
from fdkvc.models.numpy.model_text import Passage
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid

TOKENS, BUDGET, ANSWER_TOKENS = 2000, 1024, 32

PIECE = 128
"""Tokens that are read before a policy evicts again."""

WAYS = ("fifo", "h2o", "sinks(weighted-recency)")

PLACES = ("first", "last")

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "

THINGS = (
    *("quiet-harbor", "amber-lantern", "distant-meadow", "silver-kettle", "narrow-bridge"),
    *("copper-whistle", "wooden-anchor", "gentle-thunder", "frozen-orchard", "hidden-staircase"),
)


def needle(thing: str, number: int) -> str:
    """Return the sentence that names the number of a thing."""
    return f"One of the special magic numbers for {thing} is: {number}. "


def case_text(model: LanguageModel, place: str, seed: int) -> tuple[str, int]:
    """Return the message of a case, and the number that answers it."""
    generator = random.Random(seed)
    things = generator.sample(THINGS, 4)
    numbers = [generator.randrange(10**6, 10**7) for _ in things]
    sentences = [needle(*pair) for pair in zip(things, numbers, strict=True)]
    length = len(model.tokens.encode(NOISE)[0])
    text = [NOISE] * (TOKENS // length)
    for other in sentences[1:]:
        text.insert(generator.randrange(1, len(text)), other)
    text.insert(0 if place == "first" else len(text), sentences[0])
    begin = (
        "Some special magic numbers are hidden within the following text. Make sure to memorize "
        "them. I will quiz you about the numbers afterwards.\n"
    )
    question = f"\nWhat is the special magic number for {things[0]} mentioned in the text?"
    return begin + "".join(text).strip() + question, numbers[0]


def answers(model: LanguageModel, text: str) -> dict[str, str]:
    """Return the model's answer with the full cache, and under each way."""
    caches: dict[str, TextCache] = {"full": model.full()}
    for way in WAYS:
        caches[way] = model.evicting(read_policy(way), BUDGET, "head")
    ids = (*model.tokens.first, *model.tokens.encode_passage(Passage("user", text, 0)).ids)
    for start in range(0, len(ids), PIECE):
        read([*caches.values()], ids[start : start + PIECE], last=0)
        for cache in caches.values():
            cache.end_turn()
    written = generate_passages(model.tokens, [*caches.values()], "system", most=ANSWER_TOKENS)
    return dict(zip(caches, written, strict=True))


def table_of(rows: pd.DataFrame) -> Grid:
    """Return the share of right answers by place and way, of the cases read."""
    cells = list[list[str]]()
    for way in ("full", *WAYS):
        row = [f"`{way}`"]
        for place in PLACES:
            right = rows[(rows.way == way) & (rows.place == place)].right
            if right.empty:
                row.append("–")
                continue
            low, high = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
            row.append(f"{right.sum()} of {len(right)} ({100 * low:.0f} to {100 * high:.0f} %)")
        cells.append(row)
    return Grid(["cache of 1,024", *(f"asked for the {place}" for place in PLACES)], cells)


def main() -> None:
    """Read what is left to read, and print the table."""
    asked = options(__doc__, "model", "out", cases=20, minutes=10_000)
    until = monotonic() + 60 * asked.minutes
    rows = pd.read_csv(asked.out) if asked.out.exists() else pd.DataFrame()
    read = {*rows.get("case", [])}
    model = shared_language_model(asked.model)
    for number in range(2 * asked.cases):
        if number in read or monotonic() > until:
            continue
        place = PLACES[number % 2]
        text, expected = case_text(model, place, number // 2)
        new = [
            (number, place, way, str(expected) in answer, answer)
            for way, answer in answers(model, text).items()
        ]
        columns = ["case", "place", "way", "right", "answer"]
        rows = pd.concat([rows, pd.DataFrame(new, columns=columns)])
        rows.to_csv(asked.out, index=False)
    print(table_of(rows).markdown())


if __name__ == "__main__":
    main()
