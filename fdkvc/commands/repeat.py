"""``repeat``: run a ``run.json`` again."""

import os
from argparse import Namespace
from pathlib import Path

from fdkvc.commands.kinds import KINDS, read_run
from fdkvc.conversations.sources import Sources
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_RUN_JSON_BYTES
from fdkvc.runs.console import print_results, running
from fdkvc.runs.options import settings_from
from fdkvc.runs.repeat import compare, comparison_sentence


def repeat(options: Namespace) -> None:
    """Run a ``run.json`` again and compare the numbers."""
    record = read_run(read_bytes(options.file, MAX_RUN_JSON_BYTES))
    folder = Path(options.file).parent
    if not any(os.path.isfile(folder / Path(name).name) for name in record.files):
        raise ValueError(
            "there is nothing to compare: none of the run's tables is beside run.json"
        )
    with running(options.workers) as execution:
        run = KINDS[record.kind].again(record, settings_from(Sources, options), **execution)
    comparison = compare(record, run.files, folder)
    sentence = comparison_sentence(record, comparison)
    if comparison.differences:
        raise ValueError(sentence)
    print_results(f"Repeated: {sentence}.")
