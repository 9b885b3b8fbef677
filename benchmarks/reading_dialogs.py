"""How long files of dialogs near their limits take to read, in CPU time.

    python -m benchmarks.reading_dialogs [--repetitions 3]

How work grows with a file is tested; its time is measured here.
"""

import json
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

from benchmarks import medians, options
from fdkvc.conversations.formats import read_transcripts
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.transcripts import Transcript, Turn


def file_of(value: Any) -> bytes:
    """Return a file with a value as JSON."""
    return json.dumps(value).encode()


def main() -> None:
    """Measure and print."""
    texts = [" ".join(f"w{turn}x{word}" for word in range(60)) for turn in range(2000)]
    words = Transcript("words", tuple(Turn("User", text) for text in texts))
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    calls = {"input": [call] * 60_000, "output": [{"role": "user", "content": "hi"}]}
    arguments = {f"s{number}": "a " * 30 + str(number) for number in range(4000)}
    values: list[Any] = [{"role": "user", "content": "a " * 32_000} for _ in range(3)]
    values.append(
        {
            "role": "user",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
        }
    )
    timed_calls: dict[str, Callable[[], object]] = {
        "vectors of 120,000 different words": partial(lexical_recording, words),
        "60,000 calls of one turn": partial(read_transcripts, file_of(calls)),
        "4,000 values in 96,000 words": partial(read_transcripts, file_of(values)),
    }
    for name, seconds in medians(
        timed_calls, options(__doc__, repetitions=3).repetitions, process_time
    ).items():
        print(f"{name}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
