"""Call-argument recall of a real model's attention, by policy and budget.

Prints the table of ``python -m fdkvc dialogs`` for a model in a folder, such as one of the MiniLM
family, and a file of dialogs. Needs the packages of requirements-capture.txt.

    python -m benchmarks.model_recall FOLDER FILE [--layer 3] [--policies ...] [--budgets ...]
"""

from __future__ import annotations

import argparse
from time import perf_counter

from fdkvc.corpora.capture import load_model, record
from fdkvc.corpora.formats import read_file
from fdkvc.experiments.replay import BUDGETS, Replay, default_heads, replay
from fdkvc.files.text import replay_text
from fdkvc.policies import read_policy


def main() -> None:
    """Capture, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("file")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--heads", type=int, nargs="+")
    parser.add_argument(
        "--policies", nargs="+", default=["fifo", "sink", "h2o", "random", "fd-kvc"]
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--decide", nargs="+", help="each, together or kv, or several")
    parser.add_argument("--seed", type=int, default=0, help="of the intervals")
    settings = parser.parse_args()

    began = perf_counter()
    model = load_model(settings.folder, settings.layer, settings.heads)
    recordings = [record(model, transcript) for transcript in read_file(settings.file)]
    print(f"{recordings[0].source}: captured in {perf_counter() - began:.0f} s\n")
    policies = tuple(read_policy(name) for name in settings.policies)
    decide = settings.decide or [default_heads(recordings[0])]
    chosen = Replay(policies, tuple(settings.budgets), tuple(decide))
    print(replay_text(replay(chosen, recordings), settings.seed))


if __name__ == "__main__":
    main()
