"""The dialogs page, driven without a browser."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
from html import escape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from app_pages import html, link_of, open_page, press, run_until, settled, specs
from streamlit.testing.v1 import AppTest

from fdkvc.files.export import csv_text
from fdkvc.measured.replay import Replay, replay
from fdkvc.policies import policy_named
from fdkvc.policies.together import Together
from fdkvc.run.evidence import answers, lost_in
from fdkvc.run.simulate import simulate
from fdkvc.said.formats import EXAMPLES, read_file
from fdkvc.said.lexical import lexical_recording
from fdkvc.said.trace_file import trace_bytes
from fdkvc.told.explain import explain, sentences
from fdkvc.ui.dialogs import files, transcript
from fdkvc.ui.dialogs.files import BROUGHT, DialogFile, read_dialog_file, shipped_file
from fdkvc.ui.dialogs.replay import FEW, Replayed, files_of, replay_work
from fdkvc.ui.kit.markdown import plain
from fdkvc.words import count

DIALOG = read_file(EXAMPLES / "dialogues.json")[0]
RECORDING = lexical_recording(DIALOG)
NASTY = "<img src=x onerror=alert(1)> **bold** ![x](http://elsewhere.example/x.png) :red[r] $x$"


def open_dialogs(brought: DialogFile | None = None, **link: object) -> AppTest:
    """Open the page by a link, with a file that was brought before."""
    if brought is None:
        return open_page("dialogs", **link)
    key = (brought.name, brought.digest)
    BROUGHT.keep(key, brought)
    own = {"file": "own", "sha": brought.digest[:16]}
    return open_page("dialogs", {"dialogs/brought": key}, **own, **link)


def section(app: AppTest, name: str) -> AppTest:
    app.session_state["dialogs/sections"] = name
    return settled(app.run())


def words_of(app: AppTest) -> str:
    """Return everything that is shown as Markdown."""
    kinds = (app.markdown, app.caption, app.error, app.info, app.warning)
    return "\n".join(element.value for kind in kinds for element in kind)


class Cells(HTMLParser):
    """Reads the cells of the transcript: for each its row's classes, and marked pieces of text."""

    def __init__(self, app: AppTest) -> None:
        super().__init__()
        self.cells: list[tuple[str, list[tuple[str, str, str]]]] = []
        self._row, self._mark, self._in = "", ("", ""), False
        (table,) = [
            str(each.proto.body)
            for each in app.get("html")
            if str(each.proto.body).startswith('<div class="said"')
        ]
        self.feed(table.split("<tbody>")[1])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self._row = given["class"] or ""
        elif tag == "td":
            self._in = True
            self.cells.append((self._row, []))
        elif tag in ("mark", "s"):
            self._mark = (tag, given.get("title") or "")
        elif tag == "div":
            self._in = False  # what a call asked for

    def handle_endtag(self, tag: str) -> None:
        if tag in ("mark", "s"):
            self._mark = ("", "")
        elif tag == "td":
            self._in = False

    def handle_data(self, data: str) -> None:
        if self._in and data.strip():
            self.cells[-1][1].append((*self._mark, data))


def squeezed(text: str) -> str:
    return "".join(text.split())


# ------------------------------------------------------------------------------- what it shows


@pytest.mark.parametrize("turn", [0, 9, 19])
def test_what_a_cache_holds_is_tinted_and_what_it_forgot_is_struck_out(turn: int) -> None:
    keys = ("fifo", "fd-kvc")
    cells = Cells(open_dialogs(policies=",".join(keys), turn=turn)).cells
    tokens = [token.text for said in RECORDING.tokens for token in said]
    known = RECORDING.starts[turn + 1]

    for place, key in enumerate(keys):
        trace = simulate(policy_named(key), RECORDING.dialogs, 48)
        kept = sorted(set(trace.kept[0, turn].tolist()) - {-1})
        pieces = [piece for _, cell in cells[place :: len(keys)] for piece in cell]
        held = squeezed("".join(text for tag, _, text in pieces if tag == "mark"))
        gone = squeezed("".join(text for tag, _, text in pieces if tag == "s"))
        assert held == "".join(tokens[token] for token in kept)
        assert gone == "".join(tokens[at] for at in range(known) if at not in kept)
        for row, cell in cells[place :: len(keys)]:
            assert ("to-come" in row) == (bool(cell) and all(tag == "" for tag, _, _ in cell))


def test_a_struck_out_token_says_why_it_was_evicted() -> None:
    letters = dict(zip(DIALOG.topics, "ABCD", strict=True))
    said = DIALOG.with_topics([letters[turn.topic or ""] for turn in DIALOG.turns])
    dialogs = lexical_recording(said).dialogs
    trace = simulate(policy_named("h2o"), dialogs, 48)
    shown = [
        why
        for _, cell in Cells(open_dialogs(policies="h2o", turn=19)).cells
        for tag, why, _ in cell
        if tag == "s"
    ]
    entries = trace.every_entry()
    gone = {
        int(entries.token[0, turn, slot]): int(turn)
        for turn, slot in np.argwhere(entries.rule[0] > 0)
    }

    assert shown == [
        " ".join(sentences(explain(trace, dialogs, 0, gone[token], token)))
        for token in sorted(gone)
    ]


def test_many_tokens_say_only_that_they_went(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MOST_REASONS", 100)
    cells = Cells(open_dialogs(policies="fifo", turn=9)).cells

    said = {why for _, cell in cells for tag, why, _ in cell if tag == "s"}
    assert "Token 0 (topic A, from turn 0) was evicted in turn 2 by the budget." in said
    assert all(why.endswith("by the budget.") for why in said)


def test_calls_say_which_argument_each_policy_still_held() -> None:
    app = open_dialogs(policies="fifo,fd-kvc", turn=19)
    rows = section(app, "Evidence")

    for key in ("fifo", "fd-kvc"):
        trace = simulate(policy_named(key), RECORDING.dialogs, 48)
        found = [each for each in answers(trace, RECORDING) if each.demand.kind == "call"]
        met = sum(bool(each.met[0]) for each in found)
        assert f"48 held · {met} of {len(found)} arguments met" in html(app)
        lost = [
            int(turn[0])
            for (demand, _), turn in zip(RECORDING.evidence, lost_in(trace, RECORDING), strict=True)
            if demand.kind == "call"
        ]
        assert [turn < 0 for turn in lost] == [bool(each.met[0]) for each in found]
        for each, turn in zip(found, lost, strict=True):
            what = f"{each.demand.slot} “{escape(each.demand.value)}”"
            at_once = "at once, " * (turn == each.demand.mentions[-1].turn)
            told = f"✓ {what}" if turn < 0 else f"✗ {what} lost {at_once}in turn {turn}"
            assert told in html(app)
    assert "Call-argument recall" in html(rows)


@pytest.mark.parametrize("key", ["fifo", "fd-kvc"])
def test_the_first_failed_call_is_a_headline(key: str) -> None:
    app = open_dialogs(policies="h2o,fifo,fd-kvc", look=key)

    trace = simulate(policy_named(key), RECORDING.dialogs, 48)
    demand, gone = next(
        (each, int(turn[0]))
        for (each, _), turn in zip(RECORDING.evidence, lost_in(trace, RECORDING), strict=True)
        if each.kind == "call" and turn[0] >= 0
    )
    last = demand.mentions[-1].turn
    when = "the turn in which it was said" if gone == last else f"turn {gone}"
    assert app.header[0].value == (
        f"The service call in turn {demand.turn} lost *{plain(demand.value)}*, said "
        f"{count(demand.turn - last, 'turn')} before: {policy_named(key).title} evicted it in "
        f"{when}"
    )


def test_where_there_are_no_calls_the_states_say_what_was_lost() -> None:
    states = [demand for demand in DIALOG.demands if demand.kind == "state"]
    said = dataclasses.replace(DIALOG, demands=tuple(states))
    file = DialogFile("states.json", "0" * 64, (said,))
    app = open_dialogs(file, policies="fifo", turn=19)

    trace = simulate(policy_named("fifo"), RECORDING.dialogs, 48)
    found = [each for each in answers(trace, RECORDING) if each.demand.kind == "state"]
    lost = sum(not each.met[0] for each in found)
    assert f"{len(found) - lost} of {len(found)} values met" in html(app)
    assert html(app).count('class="unmet"') == lost
    assert 'class="met"' not in html(app)


def test_evidence_can_be_narrowed_to_where_policies_part() -> None:
    app = section(open_dialogs(policies="fifo,fd-kvc"), "Evidence")
    rows = html(app).count("<tr>")
    app.toggle(key="dialogs/evidence/parted").set_value(True).run()

    traces = [simulate(policy_named(key), RECORDING.dialogs, 48) for key in ("fifo", "fd-kvc")]
    pairs = zip(*(answers(trace, RECORDING) for trace in traces), strict=True)
    same = [one.met[0] == other.met[0] for one, other in pairs if one.demand.kind == "call"]
    assert 0 < sum(same) < len(same)
    assert html(app).count("<tr>") == rows - sum(same)


def test_every_section_follows_a_step() -> None:
    app = open_dialogs(policies="fifo,h2o", entry=3)
    for name in ("One cache", "Caches side by side", "Evidence", "Heads"):
        section(app, name)
        press(app, "Next")
    assert app.session_state["dialogs/turn"] == 4
    assert "Transcript after turn 4" in html(app)


# ------------------------------------------------------------------------------- what is chosen


def test_a_link_reopens_an_example() -> None:
    link = {"file": "chat", "budget": 30, "policies": "h2o,fd-kvc:gamma=0.8", "turn": 5, "entry": 2}
    app = open_dialogs(None, **link)

    assert link_of(app).items() >= {name: str(value) for name, value in link.items()}.items()
    assert "Transcript after turn 5" in html(app)
    assert 'class="picked"' in html(app)


def test_a_link_to_a_file_of_ones_own_says_that_it_needs_the_file() -> None:
    app = open_dialogs(file="own", sha="0123456789abcdef", turn=3)

    assert "This link was made with a file of someone" in words_of(app)
    assert 'class="said"' not in html(app)
    assert app.session_state["dialogs/turn"] == 3


def test_topics_may_be_marked_and_must_fit() -> None:
    app = open_dialogs(topics="marked", schedule="AB" * 10)
    assert html(app).count('<b class="letter">B</b>') == 11  # ten turns, and the key

    app = open_dialogs(topics="marked", schedule="AB<i>")
    assert "Staying with one topic." in words_of(app)
    assert plain("'AB<I>'") in words_of(app)
    assert '<b class="letter">B</b>' not in html(app)


# ------------------------------------------------------------------------------- files


def nasty_file() -> DialogFile:
    """Return a conversation that says markup wherever text may stand."""
    said = [
        {"role": "system", "content": ""},
        {"role": "user", "topic": NASTY, "content": f"{NASTY} Rome 7"},
        {
            "role": "assistant",
            "content": NASTY,
            "tool_calls": [{"function": {"name": NASTY, "arguments": json.dumps({NASTY: "Rome"})}}],
        },
    ]
    content = json.dumps([{"id": NASTY, "messages": said}]).encode()
    return read_dialog_file(content, f"{NASTY}.json")


def test_text_of_a_file_is_escaped_and_never_markdown() -> None:
    app = open_dialogs(nasty_file(), budget=2, turn=2)
    for name in ("One cache", "Caches side by side", "Evidence", "Heads"):
        section(app, name)
        assert "<img" not in html(app)
        assert "elsewhere" not in words_of(app)
    assert escape("<img src=x onerror=alert(1)>")[:4] in html(app)


def test_a_dialog_that_begins_in_silence_is_shown() -> None:
    app = open_dialogs(nasty_file(), turn=0)
    for name in ("One cache", "Caches side by side"):
        section(app, name)
        for _ in range(2):
            press(app, "Next")
        press(app, "First")
    assert "Transcript after turn 0" in html(app)


def test_a_dialog_too_large_for_the_screen_is_refused_in_a_sentence() -> None:
    lines = "\n".join(f"User: turn {number}" for number in range(files.MOST_TURNS + 1))
    app = open_dialogs(read_dialog_file(lines.encode(), "long.txt"))

    assert "it has 129 turns, but at most 128 are shown turn by turn" in words_of(app)
    assert 'class="said"' not in html(app)


def test_a_file_beyond_the_bounds_of_the_page_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="the file has 20,000,001 bytes, but at most 20,000,000"):
        read_dialog_file(bytes(20_000_001), "large.npz")
    with pytest.raises(ValueError, match="at most 15,000,000 are shown"):
        read_dialog_file(bytes(15_000_001), "large.txt")
    many = several_heads(files.MOST_HEADS + 1)
    with pytest.raises(ValueError, match="the trace has 33 heads, but at most 32 are shown"):
        read_dialog_file(many, "heads.npz")
    monkeypatch.setattr(files, "MOST_PRODUCTS", 100)
    with pytest.raises(ValueError, match="A weekend in Trieste: its heads, turns and tokens"):
        read_dialog_file(several_heads(2), "long.npz")


# ------------------------------------------------------------------------------- heads


def several_heads(heads: int, group: int = 1) -> bytes:
    """Return a trace of one dialog; each group of heads has keys of its own."""
    alone = [lexical_recording(DIALOG, seed) for seed in range(heads)]
    vectors: dict[str, Any] = {
        name: 4 * np.concatenate([getattr(one, name) for one in alone])
        for name in ("queries", "keys", "values")
    }
    for name in ("keys", "values"):
        vectors[name] = np.repeat(vectors[name][::group], group, axis=0)
    recording = dataclasses.replace(alone[0], heads=tuple(range(heads)), **vectors)
    return trace_bytes([recording])


def test_heads_that_share_keys_decide_together_unless_someone_says_otherwise() -> None:
    file = read_dialog_file(several_heads(4, 2), "trace.npz")
    app = open_dialogs(file, policies="h2o", head=3, turn=19, section="cache")
    recording, policy = file.recording(0), policy_named("h2o")
    kept = simulate(Together(policy, 2), recording.dialogs, 48).kept[3, 19]
    tokens = [token.text for said in recording.tokens for token in said]

    held = [text for _, cell in Cells(app).cells for tag, _, text in cell if tag == "mark"]
    assert squeezed("".join(held)) == "".join(tokens[at] for at in sorted(set(kept) - {-1}))
    (ways,) = (box for box in app.selectbox if box.label == "Heads")
    assert ways.options == [
        "each decides for itself",
        "all decide together",
        "those that share keys decide together",
    ]


@pytest.mark.parametrize("mode", ["each", "together"])
def test_a_head_is_shown_alone_or_with_what_all_decide(mode: str) -> None:
    file = read_dialog_file(several_heads(3), "trace.npz")
    app = open_dialogs(file, policies="h2o", head=2, heads=mode, turn=19, entry=3, section="cache")
    recording = file.recording(0)
    policy = policy_named("h2o")
    deciding = Together(policy, 3) if mode == "together" else policy
    kept = simulate(deciding, recording.dialogs, 48).kept[2, 19]
    tokens = [token.text for said in recording.tokens for token in said]

    held = [text for _, cell in Cells(app).cells for tag, _, text in cell if tag == "mark"]
    assert squeezed("".join(held)) == "".join(tokens[at] for at in sorted(set(kept) - {-1}))
    offered = [toggle.label for toggle in app.toggle]
    assert ("What would have kept it?" in offered) == (mode == "each")
    shown = html(section(app, "Heads"))
    assert "Each policy, each head by itself and all together" in shown
    assert [f"head {head}" in shown for head in range(4)] == [True, True, True, False]


def test_too_many_heads_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 100)
    file = read_dialog_file(several_heads(2), "trace.npz")
    app = open_dialogs(file, heads="together")

    assert "the 2 heads that decide together have" in words_of(app)


# ------------------------------------------------------------------------------- the whole file


def test_all_dialogs_are_measured_and_give_the_command_lines_files() -> None:
    app = section(open_dialogs(policies="fifo,h2o"), "All dialogs of the file")
    run_until(press(app, "Run"), "Shown: 2 dialogs")

    assert specs(app)[0]["title"]["text"] == "Call-argument recall"
    assert "budget 128" in html(app)


def test_few_dialogs_have_no_intervals_and_many_do() -> None:
    said = [{"role": "user", "content": "hold a table"}, {"role": "bot", "content": "at six?"}]
    for dialogs, intervals in ((2, False), (FEW, True)):
        lines = "\n".join(json.dumps(said) for _ in range(dialogs))
        file = read_dialog_file(lines.encode(), "own.jsonl")
        app = section(open_dialogs(file, policies="fifo"), "All dialogs of the file")
        run_until(press(app, "Run"), f"Shown: {dialogs} dialogs")

        assert ("±" in html(app)) == intervals
        assert ("interval" in specs(app)[0]["title"]["subtitle"]) == intervals
        assert any("no useful intervals" in each.value for each in app.info) != intervals


def test_as_many_dialogs_are_measured_as_the_page_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(json.dumps([{"role": "user", "content": "abc"}]) for _ in range(5))
    file = read_dialog_file(lines.encode(), "five.jsonl")
    monkeypatch.setattr(files, "MOST_CHARACTERS", 11)
    assert file.measured == 3
    app = section(open_dialogs(file), "All dialogs of the file")
    assert "on the first 3 of the 5 dialogs of this file" in words_of(app)


def test_the_work_of_a_file_is_the_command_lines() -> None:
    file = shipped_file("dialogues")
    settings = Replay((policy_named("fifo"), policy_named("h2o")), (32, 48))
    done: Replayed = replay_work(settings, file)(lambda progress: None, threading.Event())
    own = replay(settings, [lexical_recording(said) for said in file.transcripts])

    files = files_of(done)
    assert files["replay.csv"] == csv_text(own)
    assert set(files) == {"replay.csv", "replay_summary.csv", "replay_paired.csv", "replay.json"}
    about = json.loads(files["replay.json"])["parameters"]
    assert (about["file"], about["source"]) == (file.digest, RECORDING.source)


def test_a_dialog_can_be_pasted() -> None:
    app = open_page("dialogs", file="own", policies="fifo")
    box = app.text_area(key="dialogs/pasted")

    settled(box.set_value("User: a table for two\nSystem: at six?").run())
    assert "a table for two" in squeezed_html(app)
    assert not app.error

    settled(app.text_area(key="dialogs/pasted").set_value("no speaker").run())
    assert app.error[0].value.startswith("pasted.txt cannot be read: line 1 names no")
    assert "Staying with pasted.txt" in app.error[0].value
    assert "a table for two" in squeezed_html(app)

    chat = json.dumps([{"role": "user", "content": "only one turn"}])
    settled(app.text_area(key="dialogs/pasted").set_value(chat).run())
    assert "only one turn" in squeezed_html(app)
    assert not app.error


def squeezed_html(app: AppTest) -> str:
    """Return what the page's HTML says, without its marks."""
    return re.sub("<[^>]*>", "", html(app))
