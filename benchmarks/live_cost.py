"""Memory and speed of `PolicyCache` beside *transformers*' own cache, on models of random weights.

    python -m benchmarks.live_cost
    python -m benchmarks.live_cost --shape 8b --device cuda --tokens 8192 32768 131072

A text of random tokens is read in turns, and tokens are written, each case in its own process. The
peak is that of the GPU's allocator, or of the process on the CPU, less what the model takes; on the
CPU, time is CPU time. Needs Linux and the packages of requirements-capture.txt. Prints a table.
"""

import argparse
import json
import statistics
from pathlib import Path
from subprocess import CalledProcessError
from time import perf_counter, process_time
from typing import Any

from benchmarks import memory, run_alone

SHAPES: dict[str, dict[str, Any]] = {
    "100m": {
        "vocab_size": 32_000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
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
"""Of about 100 million parameters, and of Llama 3 8B."""

TURN, WRITTEN = 256, 32
"""Tokens of a turn that is read, and tokens written after all turns."""

COLUMNS = (
    *("cache", "budget", "tokens", "peak MB", "cache at the end MB", "cache at its peak MB"),
    *("read tokens/s", "written tokens/s"),
)


def measure(case: dict[str, Any]) -> list[float]:
    """Return the numbers of a case, as in `COLUMNS`."""
    import torch
    import transformers
    from transformers import DynamicCache

    from fdkvc.models.transformers.cache import PolicyCache, bytes_of
    from fdkvc.models.transformers.cost import read_and_write
    from fdkvc.policies import read_policy

    cuda, tokens = case["device"] == "cuda", case["tokens"]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **SHAPES[case["shape"]], max_position_embeddings=tokens + WRITTEN
    )
    with torch.device(case["device"]):
        kind = torch.bfloat16 if cuda else torch.float32
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=kind).eval()
    ids = torch.randint(config.vocab_size, (tokens,)).tolist()
    turns = [ids[at : at + TURN] for at in range(0, tokens, TURN)]

    def cache() -> Any:
        if case["cache"] == "DynamicCache":
            return DynamicCache(config=config)
        policy, how = read_policy(case["cache"]), {"decides": case["decides"], "by_itself": False}
        return PolicyCache(policy, case["budget"], model, **how)

    read_and_write(model, cache(), turns[:1], 1)  # so that libraries are loaded
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # which resets the peak
    before = torch.cuda.memory_allocated() if cuda else memory("VmRSS")
    used = cache()
    clock = perf_counter if cuda else process_time
    most, read, written = read_and_write(model, used, turns, WRITTEN, clock=clock)
    peak = (torch.cuda.max_memory_allocated() if cuda else memory("VmHWM")) - before
    return [
        *(peak / 1e6, bytes_of(used) / 1e6, most / 1e6),
        *(tokens / read, WRITTEN / written),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="100m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--policies", nargs="+", default=["fifo", "h2o", "fd-kvc"])
    parser.add_argument("--budgets", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--tokens", nargs="+", type=int, default=[2048])
    parser.add_argument("--decides", choices=("head", "layer", "model"), default="head")
    parser.add_argument("--rounds", type=int, default=3)
    options = vars(parser.parse_args())
    lists = {name: options.pop(name) for name in ("policies", "budgets", "tokens")}
    rounds = options.pop("rounds")
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("---" for _ in COLUMNS), "|")
    for tokens in lists["tokens"]:
        cases = [(name, budget) for budget in lists["budgets"] for name in lists["policies"]]
        for name, budget in [("DynamicCache", 0), *cases]:
            case = {**options, "cache": name, "budget": budget, "tokens": tokens}
            code = f"from benchmarks.live_cost import measure as m; print(m({case!r}))"
            try:
                runs = [json.loads(run_alone(code).splitlines()[-1]) for _ in range(rounds)]
                numbers = [
                    f"{statistics.median(values):,.1f}" for values in zip(*runs, strict=True)
                ]
            except CalledProcessError as error:  # it may not fit
                numbers = [error.stderr.strip().splitlines()[-1][:80]]
            print(
                "|", " | ".join([name, str(budget or ""), f"{tokens:,}", *numbers]), "|", flush=True
            )


if __name__ == "__main__":
    main()
