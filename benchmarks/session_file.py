"""A long session of a coding agent, invented, and the time and memory that `forgot` takes for it.

``python -m benchmarks.session_file [MEGABYTES [MESSAGES [COMPACTIONS]]]``
"""

import json
import random
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from fdkvc.commands.main import main

NAMES = [
    f"{verb}_{noun}_{number}"
    for verb in ("read", "write", "load", "make", "check", "merge", "sort", "find")
    for noun in ("tide", "harbour", "buoy", "chart", "signal", "depth", "log", "berth")
    for number in range(60)
]
"""Words of the invented files."""


def long_session(
    megabytes: float, messages: int, compactions: int, words: int, seed: int = 0
) -> Iterator[str]:
    """Yield the lines of a session of about this size, with so many words and punctuation marks.

    Files are read, searched and edited; a third of them again after a compaction. What the words do
    not fill is in fields that a reader leaves out, as in real sessions.
    """
    generator = random.Random(seed)
    files = [f"src/{generator.choice(NAMES)}/{name}.py" for name in NAMES[: max(messages // 60, 4)]]
    per_result = max(8, 2 * words // max(messages, 1) - 24)
    filler_length = max(0, round(2 * megabytes * 1e6 / messages) - 5 * per_result - 900)
    last, number = "", 0

    def line(kind: str, **fields: Any) -> str:
        nonlocal last, number
        number += 1
        row = {"parentUuid": last or None, "isSidechain": False, "type": kind}
        last = f"{number:08x}-invented"
        return json.dumps({**row, "uuid": last, "sessionId": "invented", **fields})

    def said(role: str, content: Any, **fields: Any) -> str:
        return line(role, message={"role": role, "content": content}, **fields)

    def code(path: str) -> str:
        lines = [path]
        while len(lines) * 9 < per_result:
            a, b, c = generator.choices(NAMES, k=3)
            lines.append(f"{len(lines):6}\t    {a} = {b}({c}, {generator.randrange(9999)})")
        return "\n".join(lines)

    yield said("user", f"Please mend {files[0]}; the ticket is TIDE-4471.")
    for turn in range(messages // 2):
        if compactions and turn and turn % (messages // 2 // (compactions + 1)) == 0:
            metadata = {"trigger": "auto", "preTokens": 150_000, "postTokens": 9_000}
            yield line("system", subtype="compact_boundary", compactMetadata=metadata)
            named = ", ".join(generator.sample(files, min(len(files), 12)))
            summary = f"The work so far is on {named}. " + " ".join(generator.choices(NAMES, k=300))
            yield said("user", summary, isCompactSummary=True)
        call, path = f"toolu_{turn}", generator.choice(files)
        arguments = {"file_path": path, "limit": generator.randrange(1, 2000)}
        use = {"type": "tool_use", "id": call, "name": "Read", "input": arguments}
        words_before = {"type": "text", "text": f"Now {generator.choice(NAMES)}."}
        yield said("assistant", [words_before, use])
        content = [{"type": "tool_result", "tool_use_id": call, "content": code(path)}]
        yield said("user", content, toolUseResult={"stdout": "x" * filler_length})


def measure(megabytes: float, messages: int, compactions: int) -> None:
    """Print what `forgot` takes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        with path.open("w", encoding="utf-8") as file:
            words = 1_000_000 * messages // 20_000
            file.writelines(
                f"{row}\n" for row in long_session(megabytes, messages, compactions, words)
            )
        size, began = path.stat().st_size, perf_counter()
        main(["forgot", str(path)])
        seconds = perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    print(
        f"{size / 1e6:.1f} MB, {messages:,} messages: {seconds:.1f} s, {cpu:.1f} s of CPU time, "
        f"{peak:.2f} GB"
    )


if __name__ == "__main__":
    sizes = [*map(float, sys.argv[1:]), *(50, 20_000, 6)[len(sys.argv) - 1 :]]
    measure(sizes[0], int(sizes[1]), int(sizes[2]))
