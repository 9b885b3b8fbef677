"""Whether a model finds one of many numbers in a text that a policy evicts from.

    python -m benchmarks.research.needles MODEL OUT.csv [--cases 20] [--minutes M]

A case is a message of some 2,000 tokens, made by a seed as RULER makes its text of needles (Hsieh
et al. 2024, *RULER: What's the Real Context Size of Your Long-Context Language Models?*; the public
GitHub repository NVIDIA/RULER): the same sentence with other keys and numbers. One is asked for,
between 15 and 85 % of the text, as in the test of the public GitHub repository awslabs/keys_values:
after the text, or both before and after it, so that a policy that looks at attention can know what
to keep. The text is read in pieces of 128 tokens; after each, every KV head evicts by itself down
to 1,024 entries. An answer of at most 24 tokens is right if it has the number. Each message is
appended to OUT.csv, with which a later run goes on; after M minutes none is begun. Prints how many
answers are right.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd

from benchmarks import options
from fdkvc.core.statistics import share_interval
from fdkvc.models.answers import FULL
from fdkvc.models.numpy.chat import generate_passages
from fdkvc.models.numpy.language_model import LanguageModel, load_language_model
from fdkvc.models.numpy.model_text import Passage
from fdkvc.models.numpy.text_cache import TextCache, read
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import one_blas_thread

WAYS = ("fifo", "sink", "h2o", "sinks(weighted-recency)")
BUDGET, PIECE, WRITTEN, ROOM, WORKERS = 1024, 128, 24, 2048, 2
"""Entries of a head, tokens of a piece, most tokens of an answer and of a text, and cores."""

NEEDLES, PLACES = 95, (0.15, 0.85)
"""Needles of a text, and between which shares of them the one is that is asked for."""

NEEDLE = "One of the special magic numbers for {} is: {}."
QUESTION = "What is the special magic number for {} in the text? Answer with the number only."

ASKED = ("after", "before and after")
"""Where the question is."""

COLUMNS = ("case", "asked", "way", "right", "answer", "tokens")


def message_of(seed: int, asked: str) -> tuple[str, str]:
    """Return a message, and the number that it asks for."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(ord("a"), ord("z") + 1, (NEEDLES, 6))
    keys = ["".join(map(chr, row)) for row in letters.tolist()]
    numbers = rng.integers(10**5, 10**6, NEEDLES).astype(str).tolist()
    place = int(rng.uniform(*PLACES) * NEEDLES)
    question = QUESTION.format(keys[place])
    lines = [*map(NEEDLE.format, keys, numbers), question]
    return "\n".join(lines if asked == "after" else [question, *lines]), numbers[place]


def read_piece(caches: Sequence[TextCache], ids: Sequence[int]) -> None:
    """Read a piece under all caches, and evict; the first reads for those that have all tokens."""
    full, *others = caches
    whole_caches = [cache for cache in others if cache.whole]
    read([full, *(cache for cache in others if not cache.whole)], ids, last=1)
    for cache in whole_caches:
        cache.follow(full)
    for cache in caches:
        cache.end_turn()
        cache.forget_queries()


def answers(model: LanguageModel, until: float, case: tuple[int, str]) -> list[tuple[object, ...]]:
    """Return a row for each way; none if it is too late to begin."""
    if monotonic() > until:
        return []
    text, number = message_of(*case)
    caches = [model.full(), *(model.evicting(read_policy(way), BUDGET) for way in WAYS)]
    caches[0].reserve(ROOM)  # which the others share until they evict
    ids = model.tokens.encode_passage(Passage("user", text, 0), earlier_roles=()).ids
    ids = (*model.tokens.first, *ids)
    for first, end in pairwise([*range(0, len(ids), PIECE), len(ids)]):
        read_piece(caches, ids[first:end])
    texts = generate_passages(model.tokens, caches, "system", most=WRITTEN)
    named = zip((FULL, *WAYS), texts, strict=True)
    return [(*case, way, number in answer, answer, len(ids)) for way, answer in named]


def table_of(rows: pd.DataFrame) -> Grid:
    """Return how many answers are right under each way, by where the question is."""
    cells = []
    for way, of_way in rows.groupby("way", sort=False):
        line = [str(way)]
        for asked in ASKED:
            right = of_way.right[of_way.asked == asked]
            low, high = share_interval(int(right.sum()), len(right))
            share = f"{right.mean():.2f} ({low:.2f} to {high:.2f})"
            line.append(f"{right.sum()} of {len(right)}: {share}")
        cells.append(line)
    return Grid(["way", *ASKED], cells)


def main() -> None:
    """Read the messages that a file has not, and print what is right in all of them."""
    arguments = options(__doc__, "model", "out", cases=20, minutes=10_000)
    until = monotonic() + 60 * arguments.minutes
    if not arguments.out.exists():
        pd.DataFrame(columns=COLUMNS).to_csv(arguments.out, index=False)
    done = {*pd.read_csv(arguments.out)[["case", "asked"]].itertuples(index=False, name=None)}
    cases = [case for case in product(range(arguments.cases), ASKED) if case not in done]
    one_blas_thread()
    model = load_language_model(Path(arguments.model))
    with ThreadPoolExecutor(WORKERS) as threads:
        for rows in threads.map(partial(answers, model, until), cases):
            table = pd.DataFrame(rows, columns=COLUMNS)
            table.to_csv(arguments.out, mode="a", header=False, index=False)
    print(table_of(pd.read_csv(arguments.out)).markdown())


if __name__ == "__main__":
    main()
