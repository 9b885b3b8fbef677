"""Invented sessions of which it is known what was lost, given again and read again."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from fdkvc.conversations.forgot import forgot
from fdkvc.conversations.rereading import Reread
from tests.session_lines import ClaudeCode


@dataclass
class Said:
    """A message: the things and lines in it, and who wrote it."""

    uuid: str
    things: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    by_agent: bool = False


@dataclass
class Truth:
    """What is known of a compaction."""

    needs: dict[str, tuple[int, bool, bool]] = field(default_factory=dict)
    """By thing: how many calls needed it, whether it stayed, whether it came back before."""
    results: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    tokens: int = 0
    edited_tokens: int = 0
    failed: int = 0


class InventedSession:
    """Writes a session, and what each of its compactions lost."""

    def __init__(self, seed: int) -> None:
        self.drawn, self.log = random.Random(seed), ClaudeCode()
        self.codes = [f"OPS-{number}" for number in self.drawn.sample(range(1000, 9999), 6)]
        self.files = [f"/srv/shop/part{number}/module{number}.py" for number in range(4)]
        self.text = {
            path: [f"row {number} of {path[10:15]} holds marble" for number in range(1, 30)]
            for path in self.files
        }
        self.contexts: list[list[Said]] = [[]]
        self.stayed: list[list[Said]] = []
        self.truths: list[Truth] = []
        self.edited: set[str] = set()
        self.calls = 0

    def add(self, said: Said) -> None:
        self.contexts[-1].append(said)

    def tell(self) -> None:
        code = self.drawn.choice(self.codes)
        self.add(Said(self.log.user(f"The ticket {code} matters."), {code}))

    def call(self, thing: str, name: str, **arguments: Any) -> str:
        """Make a call that needs a thing; return its id."""
        self.calls += 1
        call = f"c{self.calls}"
        self.expect(thing)
        self.add(Said(self.log.call(name, call, **arguments), {thing}, by_agent=True))
        return call

    def use(self) -> None:
        code = self.drawn.choice(self.codes)
        if self.drawn.random() < 0.5:
            limit = self.drawn.randrange(9000)
            call = self.call(code, "close", ticket=code, limit=limit)
        else:
            command = f"tickets close --force {code} | head -1200"
            call = self.call(code, "Bash", command=command)
        self.add(Said(self.log.result(call, "ok")))

    def read(self) -> None:
        path = self.drawn.choice(self.files)
        first = self.drawn.randrange(0, 20)
        end = self.drawn.randrange(first + 1, 29)
        lines = self.text[path][first:end]
        if self.drawn.random() < 0.5:
            call = self.call(path, "Read", file_path=path, offset=first, limit=end - first)
            shown = "\n".join(f"{first + row:6}\t{line}" for row, line in enumerate(lines))
        else:
            call = self.call(path, "Bash", command=f"sed -n '{first},{end}p' {path}")
            shown = "\n".join(lines)
        numbered = int("\t" in shown)
        self.expect_lines(call, lines, numbered, path in self.edited)
        self.add(Said(self.log.result(call, shown), set(), lines))

    def edit(self) -> None:
        path = self.drawn.choice(self.files)
        if self.drawn.random() < 0.5:
            call = self.call(path, "Edit", file_path=path, old_string="row 1", new_string="row 1")
        else:
            call = self.call(path, "Bash", command=f"sed -i 's/marble/granite/' {path}")
        self.add(Said(self.log.result(call, "")))
        self.edited.add(path)

    def guess(self) -> None:
        """Read a file that is not there."""
        self.calls += 1
        call, path = f"c{self.calls}", f"/srv/guess{self.calls}.py"
        self.add(Said(self.log.call("Read", call, file_path=path), {path}, by_agent=True))
        part = {"type": "tool_result", "tool_use_id": call, "is_error": True}
        content = [{**part, "content": f"{path} does not exist"}]
        self.add(Said(self.log.line("user", message={"role": "user", "content": content}), {path}))
        if self.truths:
            self.truths[-1].failed += 1

    def expect(self, thing: str) -> None:
        """Note a need of the last compaction at which the thing was in context."""
        for number in range(len(self.truths) - 1, -1, -1):
            if any(thing in said.things for said in self.contexts[number]):
                needs = self.truths[number].needs
                new = self.contexts[-1][len(self.stayed[-1]) :]
                back = any(thing in said.things for said in new if not said.by_agent)
                stays = any(thing in said.things for said in self.stayed[number])
                calls, stays, back = needs.get(thing, (0, stays, back))
                needs[thing] = calls + 1, stays, back
                return

    def expect_lines(self, call: str, lines: list[str], numbered: int, is_edited: bool) -> None:
        """Note the lines of a result that had left."""
        for line in lines:
            for number in range(len(self.truths) - 1, -1, -1):
                if any(line in said.lines for said in self.contexts[number]):
                    if not any(line in said.lines for said in self.stayed[number]):
                        truth = self.truths[number]
                        truth.results.add(call)
                        truth.lines.add(line)
                        truth.tokens += len(line.split()) + numbered
                        truth.edited_tokens += is_edited * (len(line.split()) + numbered)
                    break

    def compact(self) -> None:
        context = self.contexts[-1]
        first = self.drawn.randrange(max(0, len(context) - 5), len(context) + 1)
        kept = [said for said in context[first:] if said.uuid]
        things = [*self.codes, *self.files]
        summed = self.drawn.sample(things, self.drawn.randrange(len(things)))
        self.log.boundary(preservedMessages={"uuids": [said.uuid for said in kept]})
        self.log.summary("Summary of " + ", ".join(summed))
        stayed = [Said("", {*summed}, by_agent=True), *kept]
        self.stayed.append(stayed)
        self.truths.append(Truth())
        self.edited = set()
        self.contexts.append([*stayed])

    def write(self) -> None:
        actions = [*2 * [self.tell, self.tell, self.use, self.read], self.edit, self.guess]
        for _ in range(self.drawn.randrange(1, 4)):
            for _ in range(self.drawn.randrange(4, 14)):
                self.drawn.choice(actions)()
            self.compact()
        for _ in range(self.drawn.randrange(6, 40)):
            self.drawn.choice(actions)()


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(start, marks=pytest.mark.long) for start in range(20, 200, 20))]
)
def test_every_figure_is_what_the_session_was_made_to_lose(start: int) -> None:
    sums: dict[str, int] = defaultdict(int)
    for seed in range(start, start + 20):
        made = InventedSession(seed)
        made.write()
        (session,) = made.log.read()
        results = [*forgot(session, ())]

        assert len(results) == len(made.truths)
        for result, truth in zip(results, made.truths, strict=True):
            needs = {need.value: (need.calls, need.stays, need.giver >= 0) for need in result.needs}
            assert needs == truth.needs, seed
            numbers = (len(truth.results), len(truth.lines), truth.tokens, truth.edited_tokens)
            redone = Reread(*numbers)
            assert result.ways[0].redone == redone, seed
            assert len(result.failures) == truth.failed, seed
            sums["edited"] += redone.edited_tokens
            sums["failed"] += truth.failed
            sums["lost"] += len(result.lost())
            sums["back"] += sum(need.giver >= 0 for need in result.lost())
            sums["lines"] += redone.lines
    assert min(sums["lost"] - sums["back"], *sums.values()) > 0, "all kinds occur"
