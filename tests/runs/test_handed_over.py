"""A report is one file that needs nothing else and states what was measured."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fdkvc
from fdkvc.charts.theme import LIGHT
from fdkvc.commands.main import main
from fdkvc.conversations.formats import EXAMPLES, read_transcripts
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.core.recordings import Recording
from fdkvc.explain.decisions import turn_view
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.claims import CLAIMS
from fdkvc.paper.replication.cells import measured_tables
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.finding import finding_text
from fdkvc.paper.replication.tables import series_table
from fdkvc.paper.report.claims import claims_html, line_html
from fdkvc.paper.report.document import study_report
from fdkvc.paper.report.figures import series_chart, series_rows, titled_charts
from fdkvc.paper.report.tables import measured_html
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import run_study
from fdkvc.player import scene
from fdkvc.player.moments import failed_call, nearly_kept, rescued
from fdkvc.player.payload import pack
from fdkvc.player.report import drawing, report_html
from fdkvc.player.run import DialogChoice, StageRun, build_run
from fdkvc.player.scene import scene_html, sentences_of
from fdkvc.policies import POLICIES, policy_named
from fdkvc.runs.page import page
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario, scenario_named
from tests.app_pages import unpacked
from tests.studies import few_dialogs, paper_study

FOREIGN = re.compile(r"""(?:src|href)\s*=\s*["'](?!#|data:)|@import|https?://(?!www\.w3\.org)""")
"""What would fetch something, but for the names of XML's spaces."""


@cache
def recordings() -> tuple[Recording, ...]:
    path = EXAMPLES / "dialogues.json"
    return tuple(map(lexical_recording, read_transcripts(path.read_bytes(), path.name)))


@cache
def run_of(key: str = "fd-kvc") -> StageRun:
    dialog = DialogChoice(scenario_named("mixed"), 7, World())
    return build_run(dialog, policy_named(key), 56)


@pytest.fixture(scope="module", autouse=True)
def brief() -> Iterator[None]:
    """Say what there is to say of one entry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 10)
        yield


@cache
def report() -> str:
    return study_report(few_dialogs(), recordings())


class Reader(HTMLParser):
    """Notes which tags are open, and fails where they do not close in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.frames: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag not in ("meta", "br", "input", "path", "rect", "line"):
            self.open.append(tag)
        if tag == "iframe":
            self.frames.append(str(known["srcdoc"]))
        if known.get("id"):
            self.ids.append(str(known["id"]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "rect", "line"):
            return
        assert self.open.pop() == tag


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


# ------------------------------------------------------------------------------- the report


@pytest.mark.long
def test_a_report_is_one_file_that_fetches_nothing_and_is_not_large() -> None:
    text = report()
    reader = read(text)
    assert len(text.encode()) < 3_000_000
    assert "default-src 'none'" in text
    outside = re.sub(r'srcdoc="[^"]*"', "", text)
    for part in (outside, *reader.frames):
        assert not FOREIGN.search(part), FOREIGN.search(part)
    assert len(set(reader.ids)) == len(reader.ids)
    assert len(reader.frames) == 3


def test_a_report_says_every_claim_table_figure_command_and_version() -> None:
    text = report()
    assert text.count('<li id="claim-') == len(CLAIMS)
    for number in range(1, 8):
        assert f"<summary>Table {number}: " in text
    for number in range(1, 5):
        assert f"(Figure {number})</summary>" in text
    assert text.count("<figure>") == sum(
        len(draw(LIGHT)) for _, _, draw in titled_charts(few_dialogs())
    )
    assert "python -m fdkvc benchmark --all --dialogs 6 --seed 4 --budget 56 --out results" in text
    for moment in ("An eviction", "A rescue", "A failed call"):
        assert moment in text


def test_a_report_gives_verdicts_only_with_enough_dialogs() -> None:
    assert not finding_text(few_dialogs())
    assert html.escape(finding_text(paper_study())[0]) not in report()


def test_what_a_report_quotes_is_text() -> None:
    text = report_html("<b>a</b>", ["<script>"], {})
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;a" in page("<b>a</b>", "")


def test_the_command_writes_a_report_of_the_papers_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    version = f"with version {papers_run().version}; written by FD-KVC Lab {fdkvc.__version__}."
    assert f"Measured on {papers_run().date} {version}" in text
    assert "600 dialogs of each of 6 scenarios" in text
    head, *more = map(html.escape, finding_text(papers_run().study))
    assert text.index(head) < text.index("<nav>") < text.index("<section")
    assert all(f"<p>{words}</p>" in text for words in more)
    assert "direction only" in text
    capsys.readouterr()


def test_a_report_on_dialogs_reads_the_text_of_calls_where_it_is_asked_for(tmp_path: Path) -> None:
    book = {"function": {"name": "book", "arguments": {"area": "north"}}}
    chat = [
        {"role": "user", "content": "a bed in the north"},
        {"role": "assistant", "content": "one moment", "tool_calls": [book]},
    ]
    file, out = tmp_path / "chat.json", tmp_path / "report.html"
    file.write_text(json.dumps(chat))
    few = ("--budgets", "40", "--policies", "fifo", "--out", str(tmp_path / "run"))
    assert main(["dialogs", "--dialogs", str(file), "--calls", *few]) == 0
    run = tmp_path / "run" / "run.json"
    assert main(["report", "--run", str(run), "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    assert "with the text of calls" in text
    for command in ("dialogs --dialogs FILE --", "report --run results/run.json"):
        assert f"python -m fdkvc {command}" in text
    file.rename(tmp_path / "moved.json")
    moved = ("--dialogs", str(tmp_path / "moved.json"))
    assert main(["report", "--run", str(run), *moved, "--out", str(out)]) == 0


# ------------------------------------------------------------------------------- claims, tables


def test_a_claims_numbers_are_drawn_where_they_lie() -> None:
    for results in claim_results(paper_study()):
        places = [float(place) for place in re.findall(r"left:([\d.]+)%", line_html(results))]
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", line_html(results))]
        assert all(0 <= place <= 100 for place in places)
        assert all(0 <= a + b <= 100.1 for a, b in zip(places, widths, strict=True))
    (shift,) = [
        result for result in claim_results(paper_study()) if result.claim.key == "alignment-shift"
    ]
    at = {
        kind: float(place)
        for kind, place in re.findall(r'class="(\w+)" style="left:([\d.]+)%', line_html(shift))
    }
    assert at["true"] < at["interval"] < at["measured"] < at["printed"]  # 0, 45 % and 127 %


def test_every_claim_says_why_at_a_click() -> None:
    results = claim_results(paper_study())
    text = html.unescape(claims_html(results))
    assert all(result.claim.why in text for result in results)
    assert text.count("<details>") == len(results)


def test_a_table_names_published_figures_only_where_there_are_some() -> None:
    policies = (policy_named("fd-kvc"), policy_named("tova"))
    study = run_study(Benchmark((SCENARIOS["shift"],), policies, dialogs=2), is_whole=False)
    table = measured_html(measured_tables(study)[0])
    rows = re.findall(r"<tr>.*?</tr>", table)
    assert len(rows) == 3  # the heading and two policies: H2O did not run
    assert ["<small>" in row for row in rows] == [False, True, False]
    assert "nan" not in table.lower()
    assert "None" not in table


def test_a_figure_names_only_what_it_draws_and_no_more_than_can_be_told_apart() -> None:
    every = tuple(map(policy_named, POLICIES))[:12]
    study = run_study(Benchmark((SCENARIOS["mixed"],), every, dialogs=2, metrics=("retention",)))
    table = series_table(study.results)

    def named(quantity: str) -> list[str]:
        rows = series_rows(study, table, "mixed", quantity)
        chart = series_chart(study, rows, "mixed", quantity, LIGHT)
        return sorted(set(chart["datasets"]["series"].policy))

    assert len(named("retention")) == MAX_DRAWN_POLICIES
    learn = {policy.title for policy in every if "learning_rate" in policy.initial_state()}
    assert "FD-KVC" in learn < {policy.title for policy in every}
    assert set(named("learning_rate")) <= learn


def test_a_picture_takes_the_colours_of_its_page() -> None:
    charts = titled_charts(few_dialogs())[0][2](LIGHT)
    first, second = (drawing(charts[name], name) for name in list(charts)[:2])
    for colour in (LIGHT.ink, LIGHT.paper, LIGHT.faint):
        assert f'"{colour}"' not in first.lower()
    assert 'var(--paper)"' in first
    ids = [set(re.findall(r'\bid="([^"]+)"', picture)) for picture in (first, second)]
    assert not ids[0] & ids[1]


# ------------------------------------------------------------------------------- scenes


def test_a_scene_holds_the_run_and_what_is_said_of_it() -> None:
    run = run_of()
    turn, entry = nearly_kept(run)
    packed = pack(run, "scene")
    told = sentences_of([run], entry)
    text = scene_html("<FD-KVC>", packed, turn, entry, told)
    assert "<title>&lt;FD-KVC&gt;</title>" in text
    assert not FOREIGN.search(text)
    (data,) = re.findall(r'const data = bytes\("([^"]+)"\)', text)
    assert unpacked(base64.b64decode(data)) is not None
    assert base64.b64decode(data) == packed
    (said,) = re.findall(r'await opened\("([^"]+)"\)', text)
    assert b"evicted in turn" in zlib.decompress(base64.b64decode(said))
    assert f'"turn": {turn}, "entry": {entry}' in text
    assert set(told) >= {f"{at} {entry}" for at in range(run.dialogs.turns)}
    assert len(text) < 300_000


def test_of_a_large_run_only_the_held_entry_is_told_and_of_a_small_one_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = DialogChoice(custom_scenario("AAB"), 1, World(tokens_per_turn=4))
    small = build_run(tiny, policy_named("fifo"), 8)
    run = run_of()
    assert set(sentences_of([run], 3)) == {f"{turn} 3" for turn in range(run.dialogs.turns)}
    assert sentences_of([run], None) == {}
    assert set(sentences_of([small], 3, all_entries=False)) == {f"{turn} 3" for turn in range(3)}
    monkeypatch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 2000)
    pairs = zip(small.entries["turn"], small.entries["token"], strict=True)
    assert set(sentences_of([small], None)) == {f"{turn} {token}" for turn, token in pairs}
    monkeypatch.setattr(scene, "MAX_EXPLAINED_ENTRIES", 10)
    both = sentences_of([run, run_of("h2o")], 3, lanes=True)
    assert {len(sentences) for sentences in both.values()} == {2}


def test_a_rescue_is_of_a_topic_that_returns_and_lifts_what_stays() -> None:
    run = run_of()
    turn, token = rescued(run)
    current = run.dialogs.current[0]
    assert token is not None
    assert current[turn] in current[: turn - 1]
    assert current[turn] != current[turn - 1]
    assert current[run.dialogs.born[0, token]] == current[turn]
    made = turn_view(run.trace, run.dialogs, 0, turn)
    assert token in made.token[made.kept]


def test_a_failed_call_is_of_what_was_held_once_and_is_needed_later() -> None:
    failure = failed_call(recordings(), policy_named("fd-kvc"), 56)
    assert failure is not None
    kept = failure.run.trace.kept_tokens[0]
    assert failure.token in kept[failure.turn - 1]
    assert failure.token not in kept[failure.turn]
    assert failure.turn < failure.demand.turn
    assert failed_call(recordings(), policy_named("full"), 56) is None
