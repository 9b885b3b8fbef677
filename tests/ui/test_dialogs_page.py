"""The dialogs page, driven without a browser."""

import dataclasses
import json
import re
import shlex
from functools import partial
from html import escape
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData
from streamlit.testing.v1 import AppTest, local_script_runner

from fdkvc.commands.main import main
from fdkvc.conversations.arguments import forgotten, worst_losses
from fdkvc.conversations.formats import EXAMPLES, read_dialogs
from fdkvc.conversations.lexical import KEPT, LexicalRecordings, lexical_recording
from fdkvc.conversations.page import files
from fdkvc.conversations.page.files import UPLOADS, DialogFile, read_dialog_file, shipped_file
from fdkvc.conversations.replay import Replay
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Demand
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule, Status
from fdkvc.explain.decisions import explain
from fdkvc.models import local_models
from fdkvc.models.local_models import LocalModel
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.player.entry_files import trace_files
from fdkvc.player.moments import Spoken, value_sentences, why_sentences
from fdkvc.player.run import build_run
from fdkvc.policies import policy_named, with_pinned_prompts
from fdkvc.policies.together import Together
from fdkvc.runs.export import csv_text
from fdkvc.runs.jobs import Progress
from fdkvc.ui import fields
from fdkvc.ui.downloads import files_of
from fdkvc.ui.jobs import Jobs
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import shared_jobs
from fdkvc.verdict import card as card_module
from fdkvc.verdict import checked
from fdkvc.verdict.card import Card
from fdkvc.verdict.checked import HARDLY_READS, TAKES
from fdkvc.verdict.model_shape import SHAPE, SHAPES
from fdkvc.verdict.page import choices
from fdkvc.verdict.page import verdict as verdict_page
from fdkvc.verdict.page.choices import VIEW
from fdkvc.verdict.page.replay import FileRun, lose_in_file, replay_file
from fdkvc.verdict.results import ReplayRun
from fdkvc.verdict.search import find_sizes
from fdkvc.verdict.sentences import card_grid, card_sentences, short_grid
from fdkvc.verdict.today import TODAY_WAY, Today, TodayLoss, lose_today
from tests.app_pages import (
    SECONDS,
    html,
    link_of,
    message_of,
    open_page,
    press,
    rerun_until,
    settled,
    specs,
    stage_of,
    unpacked,
    words_of,
)
from tests.examples import dialogs_of
from tests.worlds import with_heads

DIALOG = dialogs_of("dialogues")[0]
RECORDING = lexical_recording(DIALOG, 0, Encoding())
NASTY = "<img src=x onerror=alert(1)> **bold** ![x](http://elsewhere.example/x.png) :red[r] $x$"


def open_dialogs(brought: DialogFile | None = None, **link: object) -> AppTest:
    """Open the page by a link, with a file that was brought before."""
    if brought is None:
        return open_page("dialogs", **{"file": "dialogues", "budget": 48} | link)
    key = (brought.name, brought.digest)
    UPLOADS.put(key, brought)
    upload_link = {"file": "own", "sha": brought.digest[:16], "budget": 48}
    return open_page("dialogs", {"dialogs/uploaded": key}, **upload_link | link)


def file_run(settings: Replay, file: DialogFile) -> FileRun:
    return FileRun(settings, 0.95, file.key, Encoding(), file)


def replayed(settings: Replay, file: DialogFile) -> ReplayRun:
    done = replay_file(file_run(settings, file), workers=1)
    assert done is not None
    return done


def recording_of(name: str, dialog: int = 0) -> Recording:
    """Return a dialog of a shipped file in tokens."""
    return lexical_recording(shipped_file(name).transcripts[dialog], 0, Encoding())


def text_of(app: AppTest) -> dict[str, Any]:
    """Return what the transcript has got to show."""
    transcript: dict[str, Any] = stage_of(app)["text"]
    return transcript


def shown_turn(app: AppTest) -> int:
    """Return the turn that the stage is told to show."""
    return int(message_of(app)["turn"])


def test_what_holds_lists_is_not_emptied_in_a_later_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser may draw it in between, and close a list that is open in it."""
    emptied: list[str] = []
    blocks = set[str]()
    enqueue = ForwardMsgQueue.enqueue

    def record(queue: ForwardMsgQueue, message: ForwardMsg) -> None:
        place = str(message.metadata.delta_path)
        if message.delta.HasField("add_block"):
            blocks.add(place)
        elif message.delta.new_element.HasField("empty"):
            emptied.append(place)
        enqueue(queue, message)

    monkeypatch.setattr(ForwardMsgQueue, "enqueue", record)
    app = open_dialogs(policies="fifo,fd-kvc")
    settled(app.run())
    assert blocks
    assert not blocks & {*emptied}


def test_the_transcript_says_what_was_said_and_what_is_needed_later() -> None:
    app = open_dialogs(policies="fifo,fd-kvc")
    words = text_of(app)

    assert words["speakers"] == [*DIALOG.roles]
    assert [text for text, _ in words["turns"]] == list(DIALOG.texts)
    pieces = []
    for text, lengths in words["turns"]:
        ends = np.cumsum(np.abs(lengths)).tolist()
        assert ends[-1] == len(text)
        pieces += [text[e - n : e] for n, e in zip(lengths, ends, strict=True) if n > 0]
    said = [token.text for turn in RECORDING.tokens for token in turn if token.text]
    assert [piece.strip() for piece in pieces] == [text.strip() for text in said]
    calls = [mentions for demand, mentions in RECORDING.evidence if demand.kind == "call"]
    assert words["needed_tokens"] == sorted(
        {at for mentions in calls for one in mentions for at in one}
    )


def test_the_stage_says_of_a_word_why_each_policy_let_it_go() -> None:
    app = open_dialogs(policies="h2o,fifo", turn=19, entry=30)
    first, *_ = message_of(app)["sentences"]

    trace = simulate(policy_named("fifo"), RECORDING.dialogs, 48)
    why = explain(trace, RECORDING.dialogs, 0, 19, 30)
    assert why.eviction is not None
    assert first.startswith("Token 30")
    assert f"was evicted in turn {why.eviction[0]} because the cache was full." in first


@pytest.mark.long
@pytest.mark.parametrize("key", ["surprisal", "learned", "h2o", "fifo"])
@pytest.mark.parametrize("name", ["rental", "errands", "chat"])
def test_every_piece_of_a_value_has_the_verdict_of_the_call(name: str, key: str) -> None:
    recording = recording_of(name)
    run = build_run(Spoken("dialog", recording), policy_named(key), 48)
    apart = 0
    for (demand, mentions), turns in zip(
        recording.evidence, Evidence(run.trace, recording).lost, strict=True
    ):
        before, lost = demand.turn - 1, int(turns[0])
        kept = {*run.trace.kept_tokens[0, before].tolist()}
        for token in {token for mention in mentions for token in mention}:
            if recording.value_of[token][1] != mentions:
                continue  # it speaks for another call
            piece = run.deciding_token(before, token)
            assert (piece in kept) == (lost < 0)
            apart += (token in kept) != (lost < 0)
            if lost >= 0:
                result = run.trace.result(lost)
                assert result.rule[0][result.token[0] == piece] != Rule.none
    assert apart or name != "rental" or key in ("fifo", "h2o")


def test_two_views_say_the_same_of_a_value_and_one_cache_speaks_of_the_token() -> None:
    run = build_run(Spoken("dialog", RECORDING), policy_named("fd-kvc"), 48)
    token, turn = next(
        (token, turn)
        for turn in reversed(range(run.dialogs.turns))
        for token in RECORDING.value_of
        if run.deciding_token(turn, token) != token < run.dialogs.bounds[0, turn]
    )
    told_of = {}
    for view in ("words", "lanes", "cache"):
        app = open_dialogs(policies="fd-kvc", view=view, turn=turn, entry=token)
        told_of[view] = " ".join(message_of(app)["sentences"])
    assert told_of["words"] == told_of["lanes"] == " ".join(value_sentences(run, turn, token))
    assert told_of["cache"] == " ".join(why_sentences(run, turn, token)) != told_of["words"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["call", "state"])
def test_a_turn_says_what_it_needed_and_what_each_policy_had_lost_of_it(kind: str) -> None:
    demands = tuple(demand for demand in DIALOG.demands if demand.kind == kind)
    file = DialogFile("one.json", kind[0] * 64, (dataclasses.replace(DIALOG, demands=demands),))
    asked = text_of(open_dialogs(file, policies="fifo,fd-kvc"))["demands"]
    told_of = [
        (shown_demand["turn"], shown_demand["source"], what, *lost, token)
        for shown_demand in asked
        for what, lost, token in shown_demand["values"]
    ]

    recording = lexical_recording(file.transcripts[0], 0, Encoding())
    traces = [simulate(policy_named(key), recording.dialogs, 48) for key in ("fifo", "fd-kvc")]
    lost = [[int(turn[0]) for turn in Evidence(trace, recording).lost] for trace in traces]
    expected = []
    for (demand, mentions), *turns in zip(recording.evidence, *lost, strict=True):
        words = []
        for trace, at in zip(traces, turns, strict=True):
            there = np.isin(np.concatenate(mentions), trace.kept_tokens[0, demand.turn - 1]).any()
            words.append("" if at < 0 else f"{'part ' if there else ''}lost in turn {at}")
        if kind == "call" or any(words):
            what = f"{demand.slot} “{demand.value}”"
            expected.append((demand.turn, demand.source, what, *words, mentions[-1][0]))
    assert expected
    assert sorted(told_of) == sorted(expected)


def first_lost(key: str) -> tuple[Demand, tuple[tuple[int, ...], ...], int]:
    """Return what the first call lacks under a policy, its mentions, and when it was lost."""
    lost = Evidence(simulate(policy_named(key), RECORDING.dialogs, 48), RECORDING).lost
    return next(
        (demand, mentions, int(turn[0]))
        for (demand, mentions), turn in zip(RECORDING.evidence, lost, strict=True)
        if demand.kind == "call" and turn[0] >= 0
    )


def test_it_opens_where_the_first_demand_failed_with_a_word_that_was_lacking() -> None:
    app = open_dialogs(policies="fifo,h2o,fd-kvc")

    demand, mentions, _ = first_lost("fd-kvc")
    assert shown_turn(app) == demand.turn
    assert link_of(app)["entry"] == str(mentions[-1][0])


def test_another_dialog_opens_where_its_own_first_demand_failed() -> None:
    app = open_dialogs(policies="fifo,fd-kvc")
    settled(app.selectbox(key="dialogs/dialog").set_value(1).run())

    fresh = open_dialogs(dialog=1, policies="fifo,fd-kvc")
    assert shown_turn(app) == shown_turn(fresh)
    assert link_of(app)["entry"] == link_of(fresh)["entry"]


@pytest.mark.parametrize(("key", "part"), [("fifo", ""), ("fd-kvc", ""), ("h2o", "part ")])
def test_the_first_failed_call_is_a_headline(key: str, part: str) -> None:
    app = open_dialogs(policies="h2o,fifo,fd-kvc", look=key)

    demand, _, gone = first_lost(key)
    last = demand.mentions[-1].turn
    giver = DIALOG.span_kind(last, demand.mentions[-1].start)
    assert app.header[0].value == (
        f"{plain(demand.source)} in turn {demand.turn} needs {plain(demand.slot)} = "
        f"*{plain(demand.value)}*, said by the {giver} in turn {last}. "
        f"{policy_named(key).title}: {part}lost in turn {gone}."
    )


@pytest.mark.parametrize("view", list(VIEW.choices))
def test_every_view_stands_where_the_stage_has_come_to(view: str) -> None:
    app = open_dialogs(policies="fifo,h2o", turn=4, entry=3, view=view)

    assert shown_turn(app) == 4
    assert link_of(app).items() >= {"view": view, "turn": "4", "entry": "3"}.items()
    lanes = [lane["label"] for lane in stage_of(app)["lanes"]]
    assert lanes == (["H2O"] if view == "cache" else ["FIFO", "H2O"])
    assert ("text" in stage_of(app)) == (view == "words")


@pytest.mark.long
def test_one_cache_is_seen_beside_the_run_before_until_another_dialog_is_chosen() -> None:
    app = open_dialogs(policies="h2o,fd-kvc", view="cache", budget=48, turn=4)
    settled(app.number_input(key="dialogs/budget").set_value(30).run())
    assert (stage_of(app)["before"], len(stage_of(app)["lanes"])) == ("previous run", 2)
    assert any(plain("Now budget 30 instead of 48.") in said.value for said in app.caption)

    settled(app.selectbox(key="dialogs/look").set_value("h2o").run())
    assert [lane["label"] for lane in stage_of(app)["lanes"]] == ["H2O", "FD-KVC"]
    press(press(app, "Undo"), "Undo")
    assert link_of(app).items() >= {"budget": "48", "look": "fd-kvc", "turn": "4"}.items()
    assert [lane["label"] for lane in stage_of(app)["lanes"]] == ["FD-KVC"]

    settled(app.number_input(key="dialogs/budget").set_value(30).run())
    settled(app.selectbox(key="dialogs/dialog").set_value(1).run())
    assert len(stage_of(app)["lanes"]) == 1
    assert "Undo" not in [button.label for button in app.button]


def test_a_link_reopens_an_example() -> None:
    link = {"file": "chat", "budget": 30, "policies": "h2o,fd-kvc:gamma=0.8", "turn": 5, "entry": 2}
    app = open_dialogs(None, **link)

    assert link_of(app).items() >= {name: str(value) for name, value in link.items()}.items()
    assert shown_turn(app) == 5


@pytest.mark.parametrize(
    ("page", "link"),
    [("dialogs", {"sha": "0123456789abcdef", "turn": 3}), ("dialogs", {}), ("answers", {})],
)
def test_a_link_to_a_file_of_ones_own_says_that_it_needs_the_file(
    page: str, link: dict[str, Any]
) -> None:
    app = open_page(page, file="own", **link)

    said = "\n".join(info.value for info in app.main.info)  # a narrow window hides the sidebar
    assert "Choose the same file again" in said
    assert no_stage(app)
    assert not link or app.session_state["dialogs/turn"] == 3


def test_an_old_link_says_which_parameters_are_no_more() -> None:
    app = open_dialogs(topics="marked", schedule="AB", heads="each", head=1)
    names = "'topics', 'schedule', 'heads' and 'head'"
    assert f"it has unknown parameters {names}" in words_of(app)
    assert not no_stage(app)


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


@pytest.mark.long
@pytest.mark.parametrize("view", list(VIEW.choices))
def test_text_of_a_file_is_escaped_and_never_markdown(view: str) -> None:
    for turn in (0, 2):  # it begins in silence
        app = open_dialogs(nasty_file(), budget=2, turn=turn, view=view)
        assert shown_turn(app) == turn
        assert "<img" not in html(app)
        assert "elsewhere" not in words_of(app)
    assert NASTY in words_said(open_dialogs(nasty_file()))


def test_files_name_the_entries_of_a_real_dialog_by_their_words() -> None:
    dialog = Spoken("dialog", RECORDING)
    compared = {key: build_run(dialog, policy_named(key), 16) for key in ("fifo", "h2o")}
    table = pd.read_csv(StringIO(str(trace_files(compared)["entries.csv"])), keep_default_na=False)
    assert [*table].index("word") == [*table].index("token") + 1
    said = [token.text for turn in RECORDING.tokens for token in turn]
    assert table.word.tolist() == [said[token] for token in table.token]


@pytest.mark.long
def test_what_a_long_dialog_lacks_is_said_where_it_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("conversations.page.files", "player.run"):
        monkeypatch.setattr(f"fdkvc.{module}.MAX_RECORDED_ENTRIES", 20_000)
    words = " ".join(f"word{number}" for number in range(25))
    lines = "\n".join(f"User: {words}" for _ in range(40))
    file = read_dialog_file(lines.encode(), "long.txt")
    most = 20_000 // 40 - max(map(len, Encoding().turns(file.transcripts[0])))
    said = f"This dialog is short enough for it up to a budget of {most:,}."
    for view, what in (("cache", "One cache, with its order by score,"), ("lanes", "This table")):
        app = open_dialogs(file, view=view, budget=most + 1, policies="fifo,h2o")
        assert f"{what} is not available: it needs every entry" in words_of(app)
        assert said in words_of(app)
        assert no_stage(app) == (view == "cache")
        assert not app.exception
    assert "entries.csv is not available: it needs every entry" in words_of(app)
    assert "Figures of the whole run" in html(app)
    for view in ("cache", "lanes"):
        app = open_dialogs(file, view=view, budget=most, policies="fifo,h2o")
        assert "not available" not in words_of(app)
    # Entries that only one of the two keeps are named by their words.
    assert re.search(r"<th[^>]*>only in</th><th[^>]*>word</th>", html(app))
    assert re.search("<td>\\s*word</td>", html(app))


def test_a_policy_whose_cache_is_too_large_for_a_long_dialog_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fdkvc.engine.long.MAX_KEPT_ENTRIES", 100_000)
    lines = "\n".join(f"User: {'word ' * 50}" for _ in range(150))
    app = open_dialogs(read_dialog_file(lines.encode(), "long.txt"), budget=4000, policies="fifo")

    assert "turns × budget are 600,000, but at most" in words_of(app)
    assert no_stage(app)


def test_a_file_beyond_the_bounds_of_the_page_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 50,000,000 are allowed"):
        read_dialog_file(bytes(50_000_001), "large.txt")


def read_with_heads(monkeypatch: pytest.MonkeyPatch, heads: int, group: int = 1) -> Recording:
    """Let the page read a dialog with several heads; each group has keys of its own."""
    recording = with_heads(*(lexical_recording(DIALOG, seed) for seed in range(heads)))
    vectors: dict[str, Any] = {"queries": 4 * recording.queries}
    for name in ("keys", "values"):
        vectors[name] = np.repeat(4 * getattr(recording, name)[::group], group, axis=0)
    source = f"{heads} heads in groups of {group}"
    recording = dataclasses.replace(recording, source=source, **vectors)
    monkeypatch.setattr(choices, "in_tokens_of", lambda *_: recording)
    return recording


def held_at_the_end(app: AppTest) -> set[int]:
    """Return what the first lane of the stage holds after the last turn."""
    (packed,) = [
        component.proto.bytes for component in app.get("bidi_component") if component.proto.bytes
    ]
    head, (difference, flags, *_) = unpacked(packed)
    last = head["lanes"][0]["counts"][-1]
    token = np.cumsum(difference, dtype=np.uint32)[-last:]
    return set(token[(flags[-last:] & 7) < Status.evicted].tolist())


def test_heads_that_share_keys_decide_together(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, policy = read_with_heads(monkeypatch, 2, 2), policy_named("h2o")
    app = open_dialogs(policies="h2o", turn=19, view="cache")
    kept = simulate(Together(policy, 2), recording.dialogs, 48).kept_tokens[0, 19]
    assert held_at_the_end(app) == set(kept.tolist()) - {-1}

    monkeypatch.setattr(files, "MAX_JOINT_ENTRIES", 100)
    app = open_dialogs(policies="h2o", budget=47)
    assert "The 2 heads that decide together have" in words_of(app)


def card_shown(app: AppTest) -> Card:
    """Return the card of a page whose run has ended."""
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    shape = SHAPES[SHAPE.default]
    shown: Card = dataclasses.replace(done.result, shape=shape, target=done.content.target).card
    return shown


def test_as_many_dialogs_are_measured_as_the_page_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"function": {"name": "go", "arguments": {"to": "abc"}}}
    said = [{"role": "user", "content": "abc"}, {"role": "bot", "tool_calls": [call]}]
    file = read_dialog_file("\n".join([json.dumps(said)] * 5).encode(), "five.jsonl")
    monkeypatch.setattr(files, "MAX_MEASURED_CHARACTERS", 11)
    assert file.measured == 3
    assert "These are 3 of 5 dialogs." in words_of(card(open_dialogs(file)))


def test_the_head_of_the_page_opens_a_file_of_ones_own_and_leaves_no_fragment() -> None:
    app = open_dialogs(policies="fifo")
    kept = app._fragment_storage  # with the card's, which polls while a run is under way
    assert any(kept._fragments)
    press(app, "My file")

    assert not any(kept._fragments)
    assert "Upload or paste" in words_of(app)
    assert not app.main.info, "nobody followed a link"
    assert link_of(app)["file"] == "own"
    assert len(app.main.get("file_uploader")) == 1
    assert "My file" not in [button.label for button in app.button]


def test_a_plain_text_has_a_headline() -> None:
    app = open_dialogs(
        read_dialog_file(b"A: one two\nB: three four", "own.txt"), budget=2, policies="fifo"
    )
    assert app.header[0].value == "FIFO ends with 2 of 36 tokens; the oldest is from turn 1"


@pytest.mark.long
def test_the_work_of_a_file_is_the_command_lines() -> None:
    file = shipped_file("dialogues")
    settings = Replay((policy_named("fifo"), policy_named("h2o")), (1,))
    done = dataclasses.replace(replayed(settings, file), shape=SHAPES[SHAPE.default])
    assert KEPT.tokens == 0, "a run leaves no vectors in memory"
    texts = LexicalRecordings(file.transcripts, 0, Encoding())
    recomputed, _ = find_sizes(settings, texts, 0.95, workers=1)

    cancelled = Event()
    cancelled.set()
    assert replay_file(file_run(settings, file), workers=1, cancelled=cancelled) is None

    files = files_of(done)
    assert files["replay.csv"] == csv_text(recomputed)
    assert list(files) == [*done.tables, "run.json"]
    about = json.loads(files["run.json"])["parameters"]
    assert (about["file"], about["source"]) == (file.digest, RECORDING.source)
    assert about["budgets"] == sorted({*recomputed.budget})


def test_an_agent_conversation_opens_on_the_call_that_failed_and_shows_its_spans() -> None:
    app = open_page("dialogs", file="rental", policies="surprisal,h2o", budget=256)

    assert not app.exception
    assert app.header[0].value == (
        "free\\_bikes in turn 11 needs day = *2025-06-14*, returned by a tool in turn 7. "
        "Surprisal: lost in turn 8."
    )
    assert shown_turn(app) == 11
    recording = shipped_file("rental").recording(0)
    kinds = [kind for _, kind in recording.spans]
    assert kinds[:4] == ["system", "user", "result", "assistant"]


def card(app: AppTest) -> AppTest:
    """Rerun the page until its card has the verdict on the whole file."""
    return rerun_until(app, has_card)


def has_card(app: AppTest) -> bool:
    return any("--plan" in block.value for block in app.code)


@pytest.mark.long
def test_a_file_is_replayed_by_itself_as_the_command_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = card(open_page("dialogs", file="rental", target=90))

    shown = card_shown(app)
    # Today's limit, which page and command add, loses nothing: what to set is "to store less".
    setting, *others = card_sentences(shown)
    setting = f"To store less than today, s{setting[1:-1]}"
    for sentence in (setting, *others):
        assert plain(sentence) in words_of(app)
    grids = card_grid(shown), short_grid(shown)
    marked = [cell for grid in grids for row in grid.rows for cell in row if cell]
    cells = [cell.replace("set: ", "to store less: ") for cell in marked]
    assert all(f"<td>{escape(cell)}</td>" in html(app) for cell in cells)
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    compared = vars(card_module)["CANDIDATES"]  # three of them in these tests
    assert {row.name for row in done.content.replay.policies} >= {*compared}
    buttons = [
        button.label for button in app.button if (button.key or "").startswith("dialogs/loss/")
    ]
    assert shown.best is not None
    assert shown.best.size is not None
    lost = done.result.lost(shown.best.policy, shown.best.size)
    assert 0 < len(buttons) == min(5, lost.value.nunique())
    link = link_of(app)
    assert link["budget"] == str(shown.best.size)

    (command,) = [block.value for block in app.code if "--plan" in block.value]
    words = shlex.split(command)
    words[words.index("rental.json")] = str(EXAMPLES / "rental.json")
    assert main(words[3 : words.index("--out")]) == 0
    printed = capsys.readouterr().out
    assert setting in " ".join(printed.splitlines())

    settled(app.selectbox(key="dialogs/target").set_value("99").run())
    assert link_of(card(app))["target"] == "99"
    assert card_shown(app).target == 0.99


def upload_tokenizer(app: AppTest, content: bytes) -> AppTest:
    loaders: list[Any] = list(app.get("file_uploader"))
    uploader = next(loader for loader in loaders if "tokenizer.json" in loader.label)
    uploader.upload("tokenizer.json", content, "application/json").run()
    return app


@pytest.mark.long
def test_a_tokenizer_of_ones_own_counts_the_tokens() -> None:
    app = card(open_page("dialogs", file="chat", policies="fifo"))
    assert "Tokens are those of SmolLM2" in words_of(app)
    assert "Llama" not in words_of(app), "SmolLM2's tokens tell no bytes of another model"
    content = (Path(str(BUNDLED)) / "tokenizer.json").read_bytes()
    app = card(settled(upload_tokenizer(app, content)))
    assert "Tokens are those of tokenizer.json" in words_of(app)
    encoding = Encoding.of_file(content)
    (text,) = shipped_file("chat").transcripts
    assert card_shown(app).tokens == sum(map(len, encoding.turns(text)))
    upload_tokenizer(app, b"{}")
    assert "Counting tokens as SmolLM2 does." in app.error[0].value


@pytest.mark.long
def test_tokenizers_on_this_machine_count_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = LocalModel("ollama:tiny:1m", Path(str(BUNDLED)), 1, "Ollama")
    monkeypatch.setattr(local_models, "local_models", lambda: {stored.name: stored})
    offered = dataclasses.replace(choices.TOKENS_OF, choices={"smollm2": "", stored.name: ""})
    monkeypatch.setattr(choices, "TOKENS_OF", offered)
    app = card(open_page("dialogs", file="chat", policies="fifo"))
    app.selectbox(key="dialogs/tokens").set_value(stored.name).run()
    app = card(settled(app))
    (text,) = shipped_file("chat").transcripts
    assert card_shown(app).tokens == sum(Encoding.of_model(str(BUNDLED)).sizes(text))
    assert card_shown(app).unit == "tiny:1m"
    assert "GB instead of" not in words_of(app), "no bytes of Llama by tokens of another model"
    assert any("--tokens ollama:tiny:1m" in block.value for block in app.code)


BUNDLED_READS = dataclasses.replace(
    choices.READER, default="bundled", choices={"bundled": "Bundled"}
)


def read_of(app: AppTest) -> Any:
    """Return what the model has read of the page's conversations, once it has."""
    check: Any = verdict_page._checks().find(app.session_state["dialogs/check"])
    return check.future.result(SECONDS).read


@pytest.mark.long
def test_a_model_reads_the_ways_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "READER", BUNDLED_READS)
    app = card(open_page("dialogs", file="dialogues"))
    read = read_of(app)
    assert read.model == "bundled"
    assert read.scores
    settled(app.run())
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    judged = done.result.with_read(read, workers=1)
    today = lose_today(Today.read(TODAY_WAY.default), judged.recordings, workers=1)
    shown = dataclasses.replace(judged, today=today, shape=SHAPES[SHAPE.default]).card
    assert shown is not None
    for words in card_sentences(shown):
        assert plain(words) in words_of(app)
    assert any(f"--model {BUNDLED}" in block.value for block in app.code)


@pytest.mark.parametrize(("problem", "helps"), [(TAKES, True), (HARDLY_READS, False)])
def test_more_minutes_are_offered_where_they_help_and_a_click_reads_for_them(
    monkeypatch: pytest.MonkeyPatch, problem: str, helps: bool
) -> None:
    """A browser reruns the button's fragment alone, unlike `AppTest`."""

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError(problem)

    monkeypatch.setattr(choices, "READER", BUNDLED_READS)
    monkeypatch.setattr(verdict_page, "check_replay", fail)
    checks = Jobs(running=1)
    monkeypatch.setattr(verdict_page, "_checks", lambda: checks)
    app = settled(card(open_page("dialogs", file="chat")))
    assert plain(f"No model read it: {problem}") in words_of(app)
    assert any(button.label == "Read for 5 min" for button in app.button) == helps
    if helps:
        fragments = partial(RerunData, fragment_id_queue=[*app._fragment_storage._fragments])
        monkeypatch.setattr(local_script_runner, "RerunData", fragments)
        press(app, "Read for 5 min")
        check: Any = checks.find(app.session_state["dialogs/check"])
        assert check.content[-1] == app.number_input(key="dialogs/minutes").value == 5
        assert link_of(app)["minutes"] == "5"


def test_a_reader_that_cannot_be_loaded_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choices, "READER", BUNDLED_READS)
    monkeypatch.setattr(verdict_page, "MODELS", {"bundled": str(tmp_path)})
    app = card(open_page("dialogs", file="chat"))
    check: Any = verdict_page._checks().find(app.session_state["dialogs/check"])
    check.future.exception(SECONDS)
    settled(app.run())
    assert any("config.json" in caption.value for caption in app.caption)
    assert not app.exception


@pytest.mark.long
def test_chats_without_calls_have_a_card_without_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "READER", BUNDLED_READS)
    monkeypatch.setattr(card_module, "CLEARLY", 100.0)
    chat = "\n".join(f"User: {n} chairs by the wall.\nAssistant: Noted." for n in range(40))
    app = card(open_dialogs(read_dialog_file(chat.encode(), "chat.txt")))
    read = read_of(app)
    assert read.scores
    settled(app.run())
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    shown = dataclasses.replace(done.result, read=read, shape=SHAPES[SHAPE.default]).card
    best = shown and shown.best
    assert best is not None
    assert plain(best.policy) in html(app)
    assert not specs(app), "no values, so no share of them to draw"


@pytest.mark.long
def test_a_model_reads_for_more_minutes_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "READER", BUNDLED_READS)
    monkeypatch.setattr(checked, "MINUTE_TOKENS", 750)
    texts = shipped_file("dialogues").transcripts
    app = card(open_page("dialogs", file="dialogues", target=99))

    assert read_of(app).dialogs == 1
    settled(app.number_input(key="dialogs/minutes").set_value(9).run())
    assert {*read_of(app).names} == {text.name for text in texts}
    settled(app.run())
    assert plain("has read 2 of 2 conversations") in words_of(app)


def test_a_session_has_no_card_but_its_own() -> None:
    assert "dialogs/verdict" in open_page("dialogs", file="dialogues").session_state
    assert "dialogs/verdict" not in open_page("dialogs", file="agent").session_state


@pytest.mark.long
def test_what_is_lost_today_is_known_while_the_search_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Event()

    def replay_in_steps(run: FileRun, **execution: Any) -> ReplayRun | None:
        execution["on_progress"](Progress(1, 4, "4 dialogs at 3 ways", 1.0))
        assert known.wait(SECONDS)
        return replay_file(run, workers=1)

    monkeypatch.setattr(verdict_page, "replay_file", replay_in_steps)
    rental = dataclasses.replace(shipped_file("rental"), name="steps.json", digest="steps")
    app = rerun_until(open_dialogs(rental, limit=1000), lambda app: "Today you" in words_of(app))
    (bar,) = app.get("progress")
    assert plain("4 dialogs at 3 ways, about 3 s left") in bar.proto.text
    assert plain("you lose 7 of 40 values") in words_of(app)
    assert not has_card(app)
    known.set()
    assert not card(app).get("progress")
    press(app, "Open Two bikes and a cargo bike where “HB-7302” is missing")
    link = link_of(app)
    assert (link["policies"], link["budget"]) == ("reread(messages(fifo))", "1000")


def test_another_limit_of_today_is_waited_for_after_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = card(open_page("dialogs", file="rental", target=90))
    known = Event()

    def lose_late(run: FileRun, today: Today, **execution: Any) -> TodayLoss:
        assert known.wait(SECONDS)
        return lose_in_file(run, today, **execution)

    monkeypatch.setattr(verdict_page, "lose_in_file", lose_late)
    settled(app.number_input(key="dialogs/limit").set_value(1003).run())
    assert [bar.proto.text for bar in app.get("progress")] == ["Today: Starting"]
    known.set()
    assert plain("you lose") in words_of(rerun_until(app, lambda app: not app.get("progress")))


@pytest.mark.long
def test_a_run_can_be_stopped_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, runs = shipped_file("chat"), list[FileRun]()

    def replay_until_stopped(run: FileRun, **execution: Any) -> ReplayRun | None:
        runs.append(run)
        execution["on_progress"](Progress(1, 4, "4 dialogs at 3 ways", 1.0))
        if len(runs) == 1:
            assert execution["cancelled"].wait(SECONDS)
            return None
        return replay_file(run, workers=1)

    monkeypatch.setattr(verdict_page, "replay_file", replay_until_stopped)
    app = open_dialogs(dataclasses.replace(chat, name="stopped.json", digest="stopped"))
    press(app, "Stop")
    while app.get("progress"):
        settled(app.run())
    assert "Stopped" in words_of(app)
    settled(app.run())
    assert len(runs) == 1, "nothing runs again by itself"

    press(app, "Go on")
    assert has_card(card(app))
    assert len(runs) == 2


@pytest.mark.long
def test_a_preset_brings_its_limit() -> None:
    app = card(open_page("dialogs", file="rental", target=90))
    settled(app.selectbox(key="dialogs/today").set_value("anthropic").run())
    assert app.number_input(key="dialogs/limit").value == 100_000
    assert link_of(app)["today"] == "anthropic"
    app.number_input(key="dialogs/limit").set_value(1000).run()
    settled(app.selectbox(key="dialogs/today").set_value("ollama").run())
    assert app.number_input(key="dialogs/limit").value == 1000, "it was entered"


def test_a_card_replaces_nothing_that_is_shown() -> None:
    linked = card(open_page("dialogs", file="dialogues", budget=30, policies="h2o"))
    assert link_of(linked)["budget"] == "30"


def test_a_dialog_shorter_than_the_budget_is_not_said_to_be_held_by_a_policy() -> None:
    app = open_dialogs(policies="fifo", budget=4000)
    assert app.header[0].value.startswith("FIFO evicted nothing: this dialog has only ")


def test_the_transcript_opens_at_the_worst_loss_of_the_recommended_way() -> None:
    app = card(open_page("dialogs", file="rental", target=90))
    best = card_shown(app).best
    assert best is not None
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    worst = worst_losses(done.result.lost(best.policy, best.size or 0)).iloc[0]
    assert shown_turn(app) == worst.turn
    assert link_of(app)["policies"].split(",")[-1] == best.policy
    button = "Show this setting in the transcript"
    assert button not in [row.label for row in app.button]
    settled(app.number_input(key="dialogs/budget").set_value(48).run())
    press(app, button)
    assert link_of(app)["budget"] == str(best.size)


def test_a_forgotten_argument_leads_to_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    file = shipped_file("rental")
    settings = Replay(with_pinned_prompts([policy_named("fifo")]), (1,))
    done = replayed(settings, file)
    asked: list[Any] = []
    monkeypatch.setattr(fields, "hold_and_rerun", lambda page, values: asked.extend(values))
    monkeypatch.setattr(verdict_page, "held", lambda *_: ("fifo", "h2o"))
    lost = forgotten(done.arguments)
    row: Any = lost[lost.policy != "fifo"].iloc[0].to_dict()

    verdict_page.open_loss("dialogs", file, done.recordings, row)

    values = {field.name: value for field, value in asked}
    assert values["turn"] == row["turn"]
    assert values["policies"] == ("fifo", "h2o", row["policy"])
    assert values["look"] == row["policy"]
    assert (values["dialog"], values["budget"]) == (0, row["budget"])
    recording = recording_of("rental")
    assert recording.words[values["entry"]].lower() in row["value"].lower()


def test_a_forgotten_argument_of_another_dialog_is_shown_at_its_turn() -> None:
    file = shipped_file("dialogues")
    done = replayed(Replay((policy_named("fifo"),), (1,)), file)
    lost = forgotten(done.arguments)
    row: Any = lost[lost.dialog == file.transcripts[1].name].iloc[-1].to_dict()
    app = open_dialogs(policies="fifo", look="fifo", dialog=0)

    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "hold_and_rerun", lambda page, values: asked.extend(values))
        patch.setattr(verdict_page, "held", lambda *_: ("fifo",))
        arrived: list[Any] = []
        patch.setattr(verdict_page, "arrive", lambda *given: arrived.append(given))
        patch.setattr(choices, "which_dialog", lambda _, *place: ("dialogues", "", *place))
        verdict_page.open_loss("dialogs", file, done.recordings, row)
    assert arrived == [("dialogs", ("dialogues", "", 1, "lexical"), True)]

    app.session_state["pending"] = "dialogs", asked
    app.session_state["dialogs/opened"] = arrived[0][1]
    settled(app.run())
    assert (shown_turn(app), link_of(app)["dialog"]) == (row["turn"], "1")
    assert f"needs {plain(row['slot'])} = *{plain(row['value'])}*" in app.header[0].value


def paste(app: AppTest, text: str) -> AppTest:
    """Paste a dialog, and wait until its card is known and its transcript is shown."""
    settled(app.text_area(key="dialogs/pasted").set_value(text).run())
    return rerun_until(app, lambda app: bool(app.header), "its transcript never came")


@pytest.mark.long
def test_a_dialog_can_be_pasted() -> None:
    app = open_page("dialogs", file="own", policies="fifo")

    paste(app, "User: a table for two\nSystem: at six?")
    assert "a table for two" in words_said(app)
    assert shown_turn(app) == 1, "nothing is needed later, so it opens at the end"
    assert "once the same file is opened there" in words_of(app)
    assert not app.error

    paste(app, "no speaker")
    assert app.error[0].value.startswith("pasted.txt cannot be read: line 1 has no")
    assert "Still using pasted.txt" in app.error[0].value
    assert "a table for two" in words_said(app)

    chat = json.dumps([{"role": "user", "content": "only one turn"}])
    paste(app, chat)
    assert "only one turn" in words_said(app)
    assert shown_turn(app) == 0
    assert not app.error
    too_large = "User: a table\nSystem: at six?\n---\nUser: " + "a " * 32_769
    paste(app, too_large)
    (warning,) = [alert.value for alert in app.warning if "left out" in alert.value]
    assert "dialog 1, turn 0: it has 32,769 tokens" in warning


@pytest.mark.long
def test_a_file_that_cannot_be_shown_is_not_asked_for_again() -> None:
    app = open_page("dialogs", file="own", policies="fifo")
    assert "Upload or paste" in words_of(app)

    settled(app.text_area(key="dialogs/pasted").set_value("no speaker").run())
    assert app.error[0].value.startswith("pasted.txt cannot be read: line 1 has no")
    assert "Upload or paste" not in words_of(app)
    assert no_stage(app)
    paste(app, 60 * f"User: {'7 ' * 20}\n")
    assert not app.error
    settled(app.selectbox(key="dialogs/vectors").set_value("bundled").run())
    (error,) = app.error
    assert "tokens, but the model holds at most 1,024." in error.value
    assert "7 7 7" in words_said(app), "it is shown by the letters of its words"


@pytest.mark.long
@pytest.mark.parametrize("vectors", ["lexical", "bundled"])
def test_calls_are_among_the_words_where_a_person_wants_them(vectors: str) -> None:
    app = open_dialogs(file="chat", vectors=vectors, policies="fifo", turn=3)
    assert link_of(app)["calls"] == "silent"
    assert "arguments" not in words_said(app)

    settled(app.selectbox(key="dialogs/calls").set_value("said").run())
    assert link_of(app)["calls"] == "said"
    ((dialog,), _) = read_dialogs((EXAMPLES / "chat.json").read_bytes(), calls=True)
    assert '"arguments": {' in words_said(app)
    assert words_said(app) == "".join(dialog.texts)
    # The same view by its link, and not where no file has calls.
    assert words_said(open_dialogs(None, **link_of(app))) == words_said(app)
    plain_text = open_dialogs(read_dialog_file(b"A: hi\nB: yes", "own.txt"), calls="said")
    assert link_of(plain_text)["calls"] == "silent"
    assert not [box for box in plain_text.selectbox if box.label == "Tool calls"]


def test_a_verdict_without_the_text_of_calls_is_no_verdict_with_it() -> None:
    app = card(open_dialogs(file="chat", policies="fifo"))
    silent = app.session_state["dialogs/verdict"]
    said = card(settled(app.selectbox(key="dialogs/calls").set_value("said").run()))
    assert said.session_state["dialogs/verdict"] != silent
    assert "--calls" in next(block.value for block in said.code if "--plan" in block.value)


def test_a_dialog_that_is_too_large_with_its_calls_is_left_out_and_said() -> None:
    call = {"function": {"name": "note", "arguments": {"text": "a " * 32_764}}}
    talks = [
        [{"role": "user", "content": "hi"}, {"role": "bot", "content": "so", "tool_calls": calls}]
        for calls in ([], [call])
    ]
    for some, sentence in (
        (talks, "1 dialog is left out: dialog 1, turn 1: it has 32,787 tokens"),
        (talks[1:], "dialog 0, turn 1: it has 32,787 tokens, but at most 32,768 are allowed"),
    ):
        file = read_dialog_file(json.dumps(some).encode(), "own.json")
        assert not file.skipped
        assert sentence in words_of(open_dialogs(file, calls="said"))


@pytest.mark.long
def test_values_that_nobody_said_are_told_beneath_the_card() -> None:
    call = {"function": {"name": "book", "arguments": {"area": "centre", "stars": 4}}}
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "4 stars, in the center", "mood": "in a hurry"},
        {
            "role": "assistant",
            "tool_calls": [call, {"function": {"name": "pay", "arguments": "{"}}],
        },
    ]
    app = open_page("dialogs", file="own", policies="fifo")
    app = card(paste(app, json.dumps(chat)))
    assert "Not found in the text: 1 more value." in words_of(app)
    assert [warning.value for warning in app.warning] == [
        "The arguments of 1 tool call are not a JSON object: they are read as text, and none of "
        "them is checked.",
        "Not read: field 'mood' (1×).",
    ]


def words_said(app: AppTest) -> str:
    return "".join(text for text, _ in text_of(app)["turns"])


def no_stage(app: AppTest) -> bool:
    return not any(component.proto.bytes for component in app.get("bidi_component"))
