"""How fast a language model reads and writes, with and without eviction, beside *transformers*.

    python -m benchmarks.reading_speed MODEL FILE [--dialogs 100] [--read 20] [--repetitions 5]

MODEL is a folder or GGUF file of the Llama layout, or smollm2; FILE has dialogs. The first few are
read by each alternative, in turn; medians of CPU time of one thread are printed. A token read by
itself costs what a written one does. Then answers to `--dialogs` of them are measured, if any.
*transformers* needs the packages of requirements-capture.txt, and is left out without them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import medians, options, peak_with_workers, run_alone
from fdkvc.conversations.formats import read_file
from fdkvc.core.transcripts import Transcript
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.numpy.gguf_file import as_folder, find_model
from fdkvc.models.numpy.language_model import load_language_model
from fdkvc.models.numpy.model_folder import cache_name
from fdkvc.models.numpy.text_cache import EvictingCache, TextCache, read
from fdkvc.policies import policy_named
from fdkvc.runs.workers import cores

POLICIES = ("fifo", "h2o", "fd-kvc", "surprisal")
BUDGETS = (48, 64, 96)
WRITTEN = 64  # tokens of a dialog that are read one at a time

Dialogs = Sequence[Sequence[Sequence[int]]]
"""The tokens of each turn of each dialog."""


def read_dialogs(new_cache: Callable[[], TextCache], dialogs: Dialogs) -> None:
    """Read dialogs turn by turn, each with a new cache."""
    for turns in dialogs:
        cache = new_cache()
        for ids in turns:
            read([cache], ids)
            cache.end_turn()


def library(folder: Path) -> Callable[[Dialogs], None] | None:
    """Return a function that reads dialogs with *transformers*, if that is installed."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError:
        return None
    torch.set_num_threads(1)
    with as_folder(find_model(str(folder))) as path:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def read_theirs(dialogs: Dialogs) -> None:
        for turns in dialogs:
            cache, name = None, cache_name(model)
            with torch.inference_mode():
                for ids in turns:
                    inputs = {"input_ids": torch.tensor([list(ids)]), name: cache}
                    cache = getattr(model(use_cache=True, **inputs), name)

    return read_theirs


def reading(folder: Path, dialogs: Sequence[Transcript], repetitions: int) -> None:
    """Print the time to read dialogs, at once and turn by turn, by each alternative."""
    model = load_language_model(folder)
    texts = [[passage.ids for passage in model.tokens.encode_dialog(dialog)] for dialog in dialogs]
    joined_texts = [[[token for turn in turns for token in turn]] for turns in texts]
    singly = [[[token] for token in tokens[:WRITTEN]] for (tokens,) in joined_texts]
    plain: dict[str, Callable[[Dialogs], None]] = {
        "NumPy": partial(read_dialogs, partial(TextCache, model.decoder))
    }
    theirs = library(folder)
    if theirs is not None:
        plain["transformers"] = theirs
    evicting = {
        f"NumPy, {key} {BUDGETS[0]}": partial(
            read_dialogs, partial(EvictingCache, model.decoder, policy_named(key), BUDGETS[0])
        )
        for key in POLICIES
    }
    for title, batch, readers in (
        ("at once", joined_texts, plain),
        ("turn by turn", texts, plain | evicting),
        ("token by token", singly, plain),
    ):
        measured = medians(
            {name: partial(read, batch) for name, read in readers.items()},
            repetitions,
            process_time,
        )
        tokens = sum(len(ids) for turns in batch for ids in turns)
        print(f"reading {len(batch)} dialogs, {tokens:,} tokens, {title}; CPU time of one thread")
        for name, seconds in measured.items():
            times, pace = seconds / measured["NumPy"], tokens / seconds
            milliseconds = 1e3 * seconds / len(batch)
            print(f"  {name:24s} {milliseconds:9.1f} ms, {pace:7.1f} tokens/s, {times:.2f} x")


def whole_run(folder: str, file: str, dialogs: int) -> None:
    """Run answers, and print the time and the peak memory of all processes."""
    model, transcripts = load_language_model(folder), read_file(file)[:dialogs]
    policies = tuple(policy_named(key) for key in POLICIES)
    settings = Answers(policies, BUDGETS)
    workers, began = cores(), perf_counter()
    run_answers(settings, model, transcripts, workers=workers)
    seconds = perf_counter() - began
    memory = peak_with_workers()
    print(
        f"answers of {len(transcripts)} dialogs, {len(POLICIES)} policies, {len(BUDGETS)} budgets, "
        f"{workers} workers: {seconds:.0f} s; peak memory of all processes: {memory:.0f} MB"
    )


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, "folder", "file", dialogs=100, read=20, repetitions=5)
    with threadpool_limits(1, user_api="blas"):
        reading(
            arguments.folder, read_file(arguments.file)[: arguments.read], arguments.repetitions
        )
    if not arguments.dialogs:
        return
    folder = arguments.folder.resolve() if arguments.folder.exists() else arguments.folder
    case = str(folder), str(arguments.file.resolve()), arguments.dialogs
    print(run_alone(f"from benchmarks.reading_speed import whole_run as run; run{case}"), end="")


if __name__ == "__main__":
    main()
