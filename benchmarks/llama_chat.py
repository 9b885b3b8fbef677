"""Time and memory of long chats in llama.cpp, with and without policies.

    python -m benchmarks.llama_chat FILE [--tokens 100000] [--rounds 2]

FILE has dialogs, which SmolLM2 reads one after the other as one chat, on one thread. Of the first
`TIMED` tokens the messages of users are read at once and others token by token, as in writing;
printed are the tokens per second of both, and the share of the time that eviction takes, of medians
over rounds in which the policies alternate. Then so many tokens go through a context of 2,048, and
the resident memory is printed every tenth of them.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle, takewhile
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import memory, options
from fdkvc.conversations.formats import read_file
from fdkvc.core.transcripts import Transcript
from fdkvc.models.llama_cpp.chat import LlamaText
from fdkvc.models.llama_cpp.model import LlamaModel, load_llama
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies import read_policy

POLICIES = ("full", "sink", "sinks(surprisal)", "sinks(learned)")
BUDGET, TIMED = 512, 1500
LONG_BUDGET, CONTEXT = 1024, 2048


def timed(model: LlamaModel, policy: str, turns: list[EncodedPassage]) -> tuple[float, ...]:
    """Return the seconds that a text takes to read, to write and to evict."""
    text = LlamaText(model.decoder.llama, read_policy(policy), BUDGET)
    seconds = {"read": 0.0, "write": 0.0, "evict": 0.0}
    for turn in turns:
        ids = list(turn.ids)
        user = turn.passage.writer == "user"
        began = perf_counter()
        for part in [ids] if user else [[token] for token in ids]:
            text.read(part)
        read = perf_counter()
        text.end_turn()
        seconds["read" if user else "write"] += read - began
        seconds["evict"] += perf_counter() - read
    return tuple(seconds.values())


def chat(model: LlamaModel, dialogs: Sequence[Transcript]) -> Iterator[EncodedPassage]:
    """Yield the messages of dialogs, over and over."""
    for dialog in cycle(dialogs):
        yield from model.tokens.encode_dialog(dialog)


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, "file", tokens=100_000, rounds=2)
    threads: dict[str, Any] = {"n_threads": 1, "n_threads_batch": 1}
    model, dialogs = load_llama("smollm2", n_ctx=2 * CONTEXT, **threads), read_file(arguments.file)
    count = 0

    def few(turn: EncodedPassage) -> bool:
        nonlocal count
        count += len(turn.ids)
        return count <= TIMED

    turns = [*takewhile(few, chat(model, dialogs))]
    lengths = [
        sum(len(turn.ids) for turn in turns if (turn.passage.writer == "user") == user)
        for user in (True, False)
    ]
    timed(model, "full", turns)  # which warms up
    rounds = [
        {name: timed(model, name, turns) for name in POLICIES} for _ in range(arguments.rounds)
    ]
    for name in POLICIES:
        read, write, evict = (
            median(times)
            for times in zip(*(times_by_name[name] for times_by_name in rounds), strict=True)
        )
        share = evict / (read + write + evict)
        print(f"{name}: reads {lengths[0] / read:.1f} and writes {lengths[1] / write:.1f} tokens/s")
        print(f"  eviction {share:.2%} of the time, {1e3 * evict / len(turns):.2f} ms a turn")
    del model
    model = load_llama("smollm2", n_ctx=CONTEXT, **threads)
    text = LlamaText(model.decoder.llama, read_policy("sinks(surprisal)"), LONG_BUDGET)
    began, step, next_size = perf_counter(), arguments.tokens // 10, 0
    for turn in chat(model, dialogs):
        text.read(list(turn.ids))
        text.end_turn()
        if len(text.ids) >= next_size:
            pace = len(text.ids) / (perf_counter() - began)
            line = (
                f"{len(text.ids):,} tokens: {memory('VmRSS') / 2**20:.1f} MB, {pace:.0f} tokens/s"
            )
            print(line, flush=True)
            if next_size >= arguments.tokens:
                break
            next_size += step


if __name__ == "__main__":
    main()
