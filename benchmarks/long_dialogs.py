"""Time and memory of long dialogs: by policy, and how they grow with the length.

    python -m benchmarks.long_dialogs [--tokens 9375 … 150000] [--budget 8192]

A dialog has turns of 300 words, drawn from 20,000 by Zipf's law and embedded without a model. Each
run has its own process, with one BLAS thread. Memory is the peak of the whole process.
"""

import argparse
from time import process_time

import numpy as np

from benchmarks import own_peak, run_alone
from fdkvc.conversations.lexical import word_vectors
from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.token_traits import word_surprisal
from fdkvc.engine.simulate import simulate
from fdkvc.policies import read_policy
from fdkvc.runs.jobs import one_blas_thread

POLICIES = ("fifo", "h2o", "fd-kvc", "surprisal")
TOKENS = (9_375, 18_750, 37_500, 75_000, 150_000)
TURN = 300
WORDS = 20_000


def long_dialog(tokens: int, seed: int = 0) -> DialogBatch:
    """Return a dialog of so many words in turns of 300."""
    generator = np.random.default_rng(seed)
    chance = 1 / np.arange(1, WORDS + 1)
    word = generator.choice(WORDS, tokens, p=chance / chance.sum())
    vectors = word_vectors([f"word{number}" for number in range(WORDS)])
    surprisal = np.array([word_surprisal(f"word{number}") for number in range(WORDS)], np.float32)
    projections = generator.standard_normal((3, 64, 16), np.float32) / np.float32(8)
    queries, keys, values = vectors @ projections
    return one_dialog(
        embeddings=vectors[word],
        queries=queries[word],
        keys=keys[word],
        values=values[word],
        surprisal=surprisal[word],
        turn_lengths=[len(turn) for turn in np.array_split(word, -(-tokens // TURN))],
    )


def measure(policy: str, tokens: int, budget: int) -> None:
    """Run a policy on a dialog, and print milliseconds of CPU a turn and peak memory in MB."""
    one_blas_thread()
    dialog = long_dialog(tokens)
    began = process_time()
    simulate(read_policy(policy), dialog, budget, entries=False, outputs_from=dialog.turns)
    print(f"{1e3 * (process_time() - began) / dialog.turns:.2f} {own_peak()[1]:.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--budget", type=int, default=8192)
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    options = parser.parse_args()
    print("policy tokens milliseconds_a_turn peak_mb")
    for policy in options.policies:
        for tokens in options.tokens:
            case = (policy, tokens, options.budget)
            measured = run_alone(f"from benchmarks.long_dialogs import *; measure{case}")
            print(policy, tokens, measured.strip(), flush=True)


if __name__ == "__main__":
    main()
