"""Speed and memory of `PolicyCache` beside *transformers*' own cache, on models of random weights.

    python -m benchmarks.live_cost
    python -m benchmarks.live_cost --shape 1b --device cuda --budget 1024
    python -m benchmarks.live_cost --judge smollm2 --threads 2
    python -m benchmarks.live_cost --all --device cuda

A text of random tokens is read in turns, and tokens are written. In each round every cache does so,
the library's first; ratios are to it, in the same round, and the table has their medians. The peak
is that of the GPU's allocator, or of the cache's tensors on the CPU, where time is CPU time. With
``--judge`` a model judges dialogs under four ways, by `live` and by `answers`: in CPU time with one
thread, else in the time that passes, which needs idle cores.

With ``--all`` everything that needs a GPU runs, in at most eight minutes: rows of two shapes, a
turn of 4,096 tokens over 32,768 entries, whether the GPU keeps what the CPU keeps in the same
precision, and a judged table. What there is no time for is printed as not run.
"""

import argparse
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import numpy as np

SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 4000,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "cores": {
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 8,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
    "135m": {
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "1b": {
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "8b": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}
"""For trying; for two cores; of SmolLM2 135M, Llama 3.2 1B and Llama 3 8B."""

TURN, WRITTEN = 256, 32
"""Tokens of a turn that is read, and tokens written after all turns."""

LARGE_TURN, LARGE_BUDGET = 4096, 32_768

POLICIES = (
    *("fifo", "sink", "weighted-recency"),
    *("sinks(h2o)", "snapkv", "knorm", "keydiff"),
    *("sinks(tova)", "fd-kvc", "surprisal"),
)

Clock = Callable[[], float]

COLUMNS = (
    "read ratio",
    "written ratio",
    "peak ratio",
    "read tokens/s",
    "written tokens/s",
    "peak MB",
)


class Words:
    """A tokenizer of which every token is a word."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the words of tokens."""
        return "".join(f" w{number}" for number in ids)


def made(shape: str, device: str, tokens: int) -> Any:
    """Return a model of random weights, in half precision on a GPU."""
    import torch
    import transformers

    gc.collect()  # a model refers to itself, so the one before may still be in memory
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SHAPES[shape], max_position_embeddings=tokens + WRITTEN, tie_word_embeddings=True
    )
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=kind).eval()


def cache_of(model: Any, policy: str, budget: int, decides: str) -> Any:
    """Return a new cache: the library's own for the name ``library``."""
    from transformers import DynamicCache

    from fdkvc.models.transformers.cache import PolicyCache
    from fdkvc.policies import read_policy

    if policy == "library":
        return DynamicCache(config=model.config)
    options: Any = {"decides": decides, "by_itself": False, "tokenizer": Words()}
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # no text is judged
        return PolicyCache(read_policy(policy), budget, model, **options)


def bytes_of(cache: Any) -> int:
    """Return the bytes of all tensors of a *transformers* cache."""
    total = 0
    for layer in cache.layers:
        stored = (getattr(layer, name, None) for name in ("keys", "values"))
        tensors = (*stored, *getattr(layer, "other_tensors", ()))
        total += sum(tensor.nbytes for tensor in tensors if tensor is not None)
    return total


def read_and_write(
    model: Any, cache: Any, turns: Sequence[Sequence[int]], clock: Clock
) -> tuple[int, float, float]:
    """Let a model read the turns of a text with a cache, then write tokens.

    The clock's unit is the second. Returns the cache's peak bytes, and the seconds of reading and
    of writing, evictions included.
    """
    import torch

    from fdkvc.models.numpy.model_folder import cache_name
    from fdkvc.models.transformers.cache import PolicyCache

    peak = 0

    def take(ids: Any, *, end: bool) -> Any:
        """Let the model read tokens (1, n); return the likeliest next one (1, 1)."""
        nonlocal peak
        options: Any = {cache_name(model): cache, "use_cache": True, "logits_to_keep": 1}
        logits = model(input_ids=ids, **options).logits
        peak = max(peak, bytes_of(cache))
        if end and isinstance(cache, PolicyCache):
            cache.end_turn()
        return logits[:, -1:].argmax(dim=-1)

    def now() -> float:
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return clock()

    with torch.inference_mode():
        turn_ids = [torch.tensor([ids], device=model.device) for ids in turns]
        began = now()
        for ids in turn_ids:
            token = take(ids, end=True)
        read = now()
        for number in range(1, WRITTEN + 1):
            token = take(token, end=number == WRITTEN)
        return peak, read - began, now() - read


def measure(model: Any, cache: Any, turns: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """Return seconds of reading and of writing, and the peak in bytes."""
    import torch

    cuda = model.device.type == "cuda"
    baseline = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        baseline = torch.cuda.memory_allocated()
    clock = perf_counter if cuda else process_time
    peak, reading, writing = read_and_write(model, cache, turns, clock)
    return reading, writing, torch.cuda.max_memory_allocated() - baseline if cuda else peak


def rows(
    shape: str,
    device: str,
    policies: Sequence[str],
    *,
    budget: int,
    tokens: int,
    decides: str = "head",
    rounds: int = 3,
    on_round: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each cache, the library's first, with its `COLUMNS`."""
    import torch

    model, names = made(shape, device, tokens), ["library", *policies]
    ids = torch.randint(SHAPES[shape]["vocab_size"], (tokens,)).tolist()
    turns = [ids[first : first + TURN] for first in range(0, tokens, TURN)]
    for name in names:  # so that kernels are loaded
        measure(model, cache_of(model, name, budget, decides), turns[:2])
    measurements: list[list[tuple[float, float, float]]] = []
    while len(measurements) < rounds and (not measurements or on_round()):
        measurements.append(
            [measure(model, cache_of(model, name, budget, decides), turns) for name in names]
        )
    numbers = np.array(measurements)  # (rounds, caches, 3)
    ratios = numbers[:, :1] / numbers
    ratios[:, :, 2] = 1 / ratios[:, :, 2]  # of the peak, less is better
    medians, ratio = np.median(numbers, axis=0), np.median(ratios, axis=0)
    for number, name in enumerate(names):
        speeds = [tokens / medians[number, 0], WRITTEN / medians[number, 1]]
        yield name, [*ratio[number].tolist(), *speeds, medians[number, 2] / 1e6]


def print_rows(title: str, table: Iterator[tuple[str, list[float]]]) -> None:
    """Print a table."""
    print(f"\n{title}\n\n| cache | {' | '.join(COLUMNS)} |")
    print("|", " | ".join("---" for _ in ("", *COLUMNS)), "|")
    for name, numbers in table:
        cells = [*(f"{value:.2f}" for value in numbers[:3]), *(f"{n:,.1f}" for n in numbers[3:])]
        print("|", " | ".join([name, *cells]), "|", flush=True)


def large_turn(shape: str, device: str, policy: str) -> str:
    """Return the peak of a turn of many tokens over many entries, and its seconds."""
    import torch

    from fdkvc.models.numpy.model_folder import cache_name

    small = shape == "tiny"
    turn, budget = (64, 512) if small else (LARGE_TURN, LARGE_BUDGET)
    model = made(shape, device, budget + turn)
    cache = cache_of(model, policy, budget, "head")
    with torch.inference_mode():
        for _ in range(budget // turn + 1):
            ids = torch.randint(SHAPES[shape]["vocab_size"], (1, turn), device=device)
            options: Any = {cache_name(model): cache, "logits_to_keep": 1}
            model(input_ids=ids, **options)
            began = perf_counter()
            cache.end_turn()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds = perf_counter() - began
    result = f"{policy}, {turn:,} tokens over {budget:,} entries: {seconds:.1f} s"
    if device == "cuda":
        result += f", peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB with the model"
    return result


def agreement(shape: str, device: str, policies: Sequence[str]) -> Iterator[str]:
    """Yield how many entries differ between the device and the CPU in the same precision.

    The CPU's copy of the model has its weights; a decision is an entry of a head that is kept.
    """
    import copy

    import torch

    from fdkvc.models.numpy.model_folder import cache_name

    model = made(shape, device, 1024)
    model.model.layers = model.model.layers[:2]
    model.config.num_hidden_layers = 2
    models = model, copy.deepcopy(model).to("cpu")
    for policy in policies:
        caches = [cache_of(copy_of_model, policy, 256, "head") for copy_of_model in models]
        differ = decided = 0
        for _ in range(3):
            ids = torch.randint(SHAPES[shape]["vocab_size"], (1, TURN))
            for copy_of_model, cache in zip(models, caches, strict=True):
                options: Any = {cache_name(copy_of_model): cache, "logits_to_keep": 1}
                with torch.inference_mode():
                    copy_of_model(input_ids=ids.to(copy_of_model.device), **options)
                    cache.end_turn()
            ours, theirs = (cache.held for cache in caches)
            heads = (tokens.reshape(-1, tokens.shape[2]) for tokens in (ours, theirs))
            for our_tokens, their_tokens in zip(*heads, strict=True):
                decided += len(our_tokens)
                differ += len({*our_tokens.tolist()} - {*their_tokens.tolist()})
        yield f"{policy}: {differ:,} of {decided:,} entries differ ({differ / decided:.2%})"


def judged_seconds(
    model: Any, dialogs: int, names: Sequence[str], *, workers: int = 1, clock: Clock = perf_counter
) -> float:
    """Return how long a model takes to judge ways at one size, by the code of `live`."""
    from fdkvc.conversations.formats import EXAMPLES, read_file
    from fdkvc.models.answers import Answers, run_answers
    from fdkvc.policies import read_policy

    examples = read_file(EXAMPLES / "dialogues.json")
    talks = [
        replace(examples[number % len(examples)], name=f"dialog {number}")
        for number in range(dialogs)
    ]
    settings, began = Answers(tuple(map(read_policy, names)), (128,)), clock()
    run_answers(settings, model, talks, workers=workers)
    return clock() - began


def judged(shape: str, device: str, dialogs: int) -> str:
    """Return the seconds of a table of dialogs under twelve ways at one size."""
    from fdkvc.models.numpy import BUNDLED
    from fdkvc.models.numpy.tokens import load_tokens
    from fdkvc.models.transformers.loop import LiveDecoder, LiveModel

    tokens = load_tokens(BUNDLED, SHAPES[shape]["vocab_size"])
    live = LiveModel(shape, LiveDecoder(made(shape, device, 8192)), tokens, "")
    names = (*POLICIES, "random", "reread(fifo)")
    seconds = judged_seconds(live, dialogs, names)
    return f"{dialogs} dialogs, {len(names)} ways, one size: {seconds:.0f} s"


def beside_answers(name: str, threads: int, rounds: int, dialogs: int = 4) -> Iterator[str]:
    """Yield how long `live` takes to judge dialogs with a model, and `answers`, in each round."""
    from fdkvc.models.numpy.language_model import load_language_model
    from fdkvc.models.transformers.loop import load_live

    models = load_live(name), load_language_model(name)
    clock = process_time if threads == 1 else perf_counter
    names = ("fifo", "sinks(h2o)", "fd-kvc", "surprisal")
    for _ in range(rounds):
        live, answers = (
            judged_seconds(model, dialogs, names, workers=workers, clock=clock)
            for model, workers in zip(models, (1, threads), strict=True)
        )
        seconds = f"live {live:.1f} s, answers {answers:.1f} s, {live / answers:.2f} times"
        yield f"{name}, {dialogs} dialogs, {threads} threads: {seconds}"


def everything(device: str, seconds: float, shapes: Sequence[str]) -> None:
    """Run everything that needs a GPU, as far as time allows."""
    judge, small, large = shapes
    began = perf_counter()

    def left() -> float:
        return seconds - (perf_counter() - began)

    def table(shape: str, policies: Sequence[str], rounds: int, budget: int, tokens: int) -> None:
        options: Any = {"budget": budget, "tokens": tokens, "rounds": rounds}
        table_rows = rows(shape, device, policies, **options, on_round=lambda: left() > seconds / 2)
        print_rows(f"{shape}, {budget:,} entries, {tokens:,} tokens", table_rows)

    leading, tokens = ("fifo", "sinks(h2o)", "fd-kvc"), 512 if small == "tiny" else 2048
    steps: list[tuple[float, Callable[[], Any]]] = [
        (0, lambda: table(small, POLICIES, 3, tokens // 2, tokens)),
        (60, lambda: print(*agreement(small, device, POLICIES[3:]), sep="\n")),
        (120, lambda: print(judged(judge, device, 4 if judge == "tiny" else 30))),
        (60, lambda: table(large, leading, 1, tokens // 2, tokens)),
        (60, lambda: print(*(large_turn(large, device, name) for name in leading[1:]), sep="\n")),
    ]
    for number, (seconds_needed, step) in enumerate(steps, 1):
        if left() < seconds_needed:
            print(f"step {number} of {len(steps)}: not run, no time")
            continue
        try:
            step()
        except (ValueError, RuntimeError) as error:  # it may not fit
            print(f"step {number} of {len(steps)}: {error}")
        print(f"step {number} of {len(steps)} ended, {left():.0f} s left", flush=True)


def main() -> None:
    """Print the tables."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="cores")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--decides", choices=("head", "layer", "model"), default="head")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--judge", metavar="MODEL", help="times of live and answers")
    parser.add_argument("--all", action="store_true", help="everything that needs a GPU")
    parser.add_argument("--seconds", type=float, default=460, help="that --all may take")
    parser.add_argument("--shapes", nargs=3, choices=SHAPES, default=("135m", "1b", "8b"))
    options = vars(parser.parse_args())
    threads, judge = options.pop("threads"), options.pop("judge")
    torch.set_num_threads(threads)
    runs_all, seconds, shapes = (options.pop(name) for name in ("all", "seconds", "shapes"))
    if judge:
        for row in beside_answers(judge, threads, options["rounds"]):
            print(row, flush=True)
        return
    if runs_all:
        everything(options["device"], seconds, shapes)
        return
    title = "{shape}, {budget:,} entries, {tokens:,} tokens, {rounds} rounds".format(**options)
    print_rows(title, rows(**options))


if __name__ == "__main__":
    main()
