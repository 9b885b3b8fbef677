"""Write dialogs that the bundled model was not trained on to a file.

Reads train.json.xz, as `benchmarks.research.train_bundled_model` does, and writes a list that
``python -m fdkvc answers --dialogs`` reads.

    python -m benchmarks.research.held_out train.json.xz FILE [--dialogs 200] [--seed 0]

With --dev dev.json.xz, the file also has as many development dialogs all of whose services the
bundled model does not know, drawn by the same seed; their names begin with dev.
"""

import argparse
import json
import lzma
import random
from pathlib import Path
from typing import Any

HELD_OUT = 500
"""Dialogues held out of the bundled model's training."""


def read_dialogues(path: Path) -> list[Any]:
    """Read the training dialogues, one list."""
    with lzma.open(path) as file:
        dialogues: list[Any] = json.load(file)
    return dialogues


def parted(dialogues: list[Any], held_out: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Return the training and held-out dialogues, each in their original order.

    Examples
    --------
    >>> parted(list("abcde"), held_out=2, seed=0)
    (['a', 'd', 'e'], ['b', 'c'])
    """
    order = list(range(len(dialogues)))
    random.Random(seed).shuffle(order)
    learnt, held = sorted(order[held_out:]), sorted(order[:held_out])
    return [dialogues[at] for at in learnt], [dialogues[at] for at in held]


def unknown_services(dialogues: list[Any], learnt: list[Any], count: int, seed: int) -> list[Any]:
    """Return some dialogues none of whose services are in the training dialogues."""
    known = {service for dialogue in learnt for service in dialogue["services"]}
    unknown = [dialogue for dialogue in dialogues if known.isdisjoint(dialogue["services"])]
    _, drawn = parted(unknown, min(count, len(unknown)), seed)
    return [dialogue | {"dialogue_id": f"dev {dialogue['dialogue_id']}"} for dialogue in drawn]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--dialogs", type=int, default=200, help="of them, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dev", type=Path, help="dev.json.xz: also dialogs of unknown services")
    settings = parser.parse_args()
    learnt, held_out = parted(read_dialogues(settings.train), HELD_OUT, settings.seed)
    _, some = parted(held_out, min(settings.dialogs, len(held_out)), settings.seed)
    if settings.dev is not None:
        some += unknown_services(
            read_dialogues(settings.dev), learnt, settings.dialogs, settings.seed
        )
    settings.file.write_text(json.dumps(some), "utf-8")
    print(f"{len(some)} dialogues: {settings.file}")


if __name__ == "__main__":
    main()
