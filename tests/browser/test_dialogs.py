"""The dialogs page as a person meets it."""

import json
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
from playwright.sync_api import Locator, Page, expect

from benchmarks.live_app import settled
from fdkvc.conversations.formats import read_file
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.limits import MAX_UPLOAD_MEGABYTES
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import policy_named
from fdkvc.verdict.card import Way
from fdkvc.verdict.settings import settings_of
from tests.browser.address import expect_linked, open_link
from tests.browser.conftest import WIDE, choose_option
from tests.browser.test_every_page import PHONE
from tests.examples import dialogs_of

DIALOGS = dialogs_of("dialogues")
LAST = len(DIALOGS[0].turns) - 1
NASTY = '<img src=x onerror="document.title=1"> **bold** ![x](http://elsewhere.example/x.png) $x$'


def open_dialogs(page: Page, **view: object) -> None:
    open_link(page, "Dialogs", **{"file": "dialogues", "budget": 48} | view)


def transcript(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Transcript")


def expect_turn(page: Page, turn: int) -> None:
    expect_linked(page, turn=turn)
    expect(transcript(page)).to_have_attribute("data-turn", f"{turn}")


NEEDED = ".demands:not([hidden]) [data-token]:not([hidden])"
"""What a turn needed, as the underlined policy held it."""


def underline(page: Page, policy: str) -> None:
    box = page.get_by_role("combobox", name="Show", exact=True)
    choose_option(box, page.get_by_role("option", name=f"Show {policy}", exact=True))
    expect(page.locator(".who .of")).to_contain_text(policy)
    settled(page)


@cache
def recording() -> Recording:
    return lexical_recording(DIALOGS[0], 0, Encoding())


def bring(page: Page, path: Path) -> None:
    page.locator("input[type=file]").set_input_files(path)


def marked(page: Page, mark: str) -> list[int]:
    """Read off the transcript which tokens bear a mark: "held" by the underlined policy."""
    return [
        int(token)
        for token in transcript(page)
        .locator(f".{mark}")
        .evaluate_all("all => all.map(each => each.dataset.token)")
    ]


def expect_marks(page: Page, trace: Trace, turn: int) -> None:
    """Expect the words that the underlined policy holds, has just evicted and no longer holds."""
    kept = set(trace.kept_tokens[0, turn].tolist()) - {-1}
    before = set(trace.kept_tokens[0, turn - 1].tolist()) - {-1}
    starts = recording().starts
    words = {place for place, word in enumerate(recording().words) if word}  # marks have no element
    assert marked(page, "held") == sorted(kept & words)
    new = {*range(*starts[turn : turn + 2])}
    assert marked(page, "gone") == sorted(((before | new) - kept) & words)
    assert set(marked(page, "lost")) == (set(range(starts[turn + 1])) - kept) & words


def test_a_person_steps_through_a_conversation_and_sees_what_was_forgotten(page: Page) -> None:
    open_dialogs(page, policies="fifo,fd-kvc", turn=0)
    expect_turn(page, 0)
    traces = [simulate(policy_named(key), recording().dialogs, 48) for key in ("fifo", "fd-kvc")]

    for key, turn in (("ArrowRight", 1), ("End", LAST), ("ArrowLeft", LAST - 1)):
        page.keyboard.press(key)
        expect_turn(page, turn)
        expect_marks(page, traces[-1], turn)  # of the last policy, as long as none is chosen
    underline(page, "FIFO")
    expect_marks(page, traces[0], turn)
    page.locator(":focus").blur()

    box, now = transcript(page).bounding_box(), page.locator(".turn.now").bounding_box()
    assert box is not None
    assert now is not None
    assert box["y"] <= now["y"] <= box["y"] + box["height"]  # the turn is in sight
    struck = page.locator(".turn .lost").first
    assert struck.evaluate("each => getComputedStyle(each).textDecorationLine") == "line-through"
    expect(page.locator(".turn.to-come")).to_have_count(1)

    why = page.get_by_role("complementary", name="Why")
    needed = page.locator(NEEDED).last
    needed.click()  # what a call needed leads to the word that was said
    token = needed.get_attribute("data-token")
    value, _ = recording().value_of[int(token or "")]
    expect(why.locator("header")).to_contain_text(f"“{value}” · value")
    expect(why.locator("header")).to_contain_text(f"token {token} · topic")

    transcript(page).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(why.locator("header")).to_contain_text("token 1")
    expect(why).to_contain_text(re.compile(r"evicted in turn \d+ because the cache"))
    expect_linked(page, entry=1)

    page.set_viewport_size(PHONE)
    box = transcript(page).bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= PHONE["width"]
    views = page.get_by_role("radiogroup", name="View").first
    assert views.evaluate("each => each.scrollWidth <= each.clientWidth"), "every view is in sight"
    assert transcript(page).evaluate("each => each.scrollWidth <= each.clientWidth")
    assert transcript(page).evaluate("each => each.scrollHeight > each.clientHeight")
    page.set_viewport_size(WIDE)

    page.get_by_role("radio", name="Side by side").click()
    expect(page.locator(".stage .lane")).to_have_count(2)
    expect(page.locator(".stage")).to_have_count(1)
    expect(page.locator(".stage .where")).to_have_text(f"{LAST - 1} of {LAST}")
    page.get_by_role("radio", name="One cache").click()
    expect_linked(page, turn=LAST - 1, entry=1, view="cache")
    entries = page.get_by_role("listbox", name="Entries of this turn")
    expect(entries.locator(".options")).to_have_attribute("data-turn", f"{LAST - 1}")
    why = page.get_by_role("region", name="Why")
    expect(why.get_by_role("columnheader", name=re.compile("last kept “[^”]*”"))).to_be_visible()
    expect(why).to_contain_text(re.compile(r"The last kept entry scored [\d.]+, [\d.]+ more\."))


def test_entries_of_an_agents_cache_are_coloured_by_kind_of_span(page: Page) -> None:
    open_dialogs(page, file="rental", view="lanes", policies="fifo,sink", budget=128, turn=20)
    legend = page.locator(".stage .kinds")
    expect(legend).to_have_text(re.compile("system prompt.*user.*assistant.*tool result"))

    recording = lexical_recording(dialogs_of("rental")[0], 0, Encoding())
    rows = page.get_by_role("complementary", name="Why").locator("tbody tr")
    starts, kinds = zip(*recording.spans, strict=True)
    place = np.array([[*SPAN_KINDS].index(kind) for kind in kinds])
    counts = []
    for key in ("fifo", "sink"):
        kept = simulate(policy_named(key), recording.dialogs, 128).kept_tokens[0, 20]
        of_kept = place[np.searchsorted(starts, kept, side="right") - 1]
        counts.append(np.bincount(of_kept, minlength=5)[[0, 1, 2, 4]].tolist())
    shown = [list(map(int, row.locator("td").all_inner_texts())) for row in rows.all()]
    table = np.array(counts)
    assert shown == table[:, table.any(axis=0)].tolist()


def test_a_file_is_brought_its_text_is_never_markup_and_a_broken_one_loses_nothing(
    page: Page, tmp_path: Path
) -> None:
    said = [
        {"role": "user", "topic": NASTY, "content": f"{NASTY} Rome"},
        {"role": "assistant", "content": f"Go to {NASTY}"},
    ]
    good, broken = tmp_path / "good.json", tmp_path / "broken.json"
    named = [{"id": name, "messages": said} for name in (NASTY, "second")]
    good.write_text(json.dumps(named), encoding="utf-8")
    turn = {"speaker": "USER", "utterance": 5}
    broken.write_text(json.dumps([{"dialogue_id": "<b>x</b>", "turns": [turn]}]), "utf-8")
    open_dialogs(page, file="own")
    for shown in (
        page.get_by_role("heading", name="Dialogs"),
        page.get_by_text("Upload or paste"),
    ):
        expect(shown).to_be_visible()
        assert shown.evaluate(
            """each => {
                const {x, y, width, height} = each.getBoundingClientRect();
                const top = document.elementFromPoint(x + width / 2, y + height / 2);
                return each.contains(top) || top.contains(each);
            }"""
        ), "the header covers nothing"

    bring(page, good)
    expect_turn(page, 1)
    expect(transcript(page)).to_contain_text(f"{NASTY} Rome")
    expect(page.get_by_role("combobox", name="Dialog")).to_have_value(NASTY)
    assert page.locator("img, .stage strong, .stage .katex").count() == 0
    settled(page)
    page.keyboard.press("ArrowLeft")
    expect_turn(page, 0)

    bring(page, broken)
    expect(page.get_by_role("alert")).to_contain_text(
        "broken.json cannot be read: dialogue 0 (<b>x</b>), turn 0: 'utterance' is missing or not "
        "a text. Still using good.json."
    )
    expect(transcript(page)).to_contain_text(f"{NASTY} Rome")
    expect_turn(page, 0)

    large = tmp_path / "large.txt"
    large.touch()
    os.truncate(large, (MAX_UPLOAD_MEGABYTES + 10) * 2**20)
    bring(page, large)
    told = page.get_by_text("must be 50.0MB or smaller")
    expect(told).to_be_visible()
    assert told.evaluate("told => told.offsetHeight > 10 && told.offsetWidth > 100")


def choose_file(page: Page, label: str) -> None:
    box = page.get_by_role("combobox", name="File", exact=True)
    choose_option(box, page.get_by_role("option", name=re.compile(label)))


def test_going_from_file_to_file_and_on(page: Page) -> None:
    """Each file's transcript follows its card, and the page goes on."""
    open_dialogs(page, dialog=1)
    expect(page.get_by_role("combobox", name="Dialog")).to_have_value(DIALOGS[1].name)
    page.get_by_role("button", name=re.compile("more …")).click()

    for label, name, policy in (
        ("a chat with tools", "chat", "Random"),
        ("service dialogs", "dialogues", "TOVA"),
    ):
        choose_file(page, label)
        expect(page).to_have_url(re.compile(f"file={name}&"))
        shown_dialog = transcript(page)
        texts = [dialog.texts[0] for dialog in dialogs_of(name)]
        expect(shown_dialog).to_contain_text(re.compile("|".join(map(re.escape, texts))))
        page.get_by_role("button", name=policy, exact=True).click()
        expect(page).to_have_url(re.compile(rf"policies=[^&]*{policy.lower()}"))
        expect(shown_dialog).to_be_visible()
        settled(page)


# The rows in view whose words are not elements.
WORDLESS = """rows => rows.filter((row) => {
  const at = row.getBoundingClientRect(), box = row.parentElement.getBoundingClientRect();
  return at.bottom > box.top && at.top < box.bottom && !row.querySelector('[data-token]');
}).map(row => row.dataset.row)"""


def test_a_long_dialog_has_elements_for_the_words_near_the_view_and_groups_small_cells(
    page: Page, tmp_path: Path
) -> None:
    lengths = [350 if turn % 9 == 4 else 15 + 10 * (turn % 7) for turn in range(60)]
    said = [
        " ".join(f"word{turn * place % 997}" for place in range(length))
        for turn, length in enumerate(lengths)
    ]
    path = tmp_path / "long.txt"
    path.write_text("\n".join(f"User: {words}" for words in said), encoding="utf-8")
    recording = lexical_recording(read_file(path)[0], 0, Encoding())
    words = {place for place, word in enumerate(recording.words) if word}
    budget, last = 2048, len(said) - 1  # a tenth of its tokens
    kept = simulate(policy_named("fifo"), recording.dialogs, budget, entries=False).kept_tokens[0]
    open_dialogs(page, file="own", policies="fifo,h2o", budget=budget)
    bring(page, path)

    expect_turn(page, last)
    underline(page, "FIFO")
    page.locator(":focus").blur()
    for key, turn in (("Home", 0), ("End", last), ("ArrowLeft", last - 1), (None, 5), (None, 31)):
        if key:
            page.keyboard.press(key)
        else:
            page.get_by_role("slider", name="Turn").fill(f"{turn}")
        expect_turn(page, turn)
        expect(page.locator(".turn.now")).to_be_in_viewport()
        now = page.locator(".turn.now [data-token]")
        new = {*range(recording.starts[turn], recording.starts[turn + 1])} & words
        expect(now).to_have_count(len(new))
        assert set(marked(page, "held")) & new == set(kept[turn].tolist()) & new
        assert page.locator(".turn").evaluate_all(WORDLESS) == []
    assert page.locator(".dialog-words [data-token]").count() < len(words) / 3
    page.get_by_role("radio", name="Side by side").click()
    expect(page.locator(".stage .lane")).to_have_count(2)
    expect(page.locator(".stage .lane").first).to_contain_text("2,048 of 2,048 kept")
    cell = page.locator(".stage .lane").first.get_by_role("option")
    expect(cell).to_have_attribute("aria-label", re.compile(r"^\d+ entries from .*token \d+, "))


PERSON_TO_TOP = "main => { dispatchEvent(new WheelEvent('wheel')); main.scrollTo(0, 0); }"
"""As a person scrolls, whom the page then no longer brings elsewhere."""


def test_what_is_chosen_at_the_top_is_brought_into_view_each_time(page: Page) -> None:
    page.goto("/dialogs?file=evening")
    stage = page.locator(".stage")
    expect(stage).to_be_attached()
    for view in ("Side by side", "One cache", "Transcript"):
        settled(page).get_by_test_id("stMain").evaluate(PERSON_TO_TOP)
        expect(stage).not_to_be_in_viewport()
        page.get_by_role("radio", name=view).click()
        expect(stage).to_be_in_viewport()


def test_what_sets_the_recommended_way_is_copied_whole(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_dialogs(page, file="rental")
    card = page.locator(".st-key-verdict")
    card.get_by_text(re.compile("^To store less: ")).click()  # today's limit is enough
    setting = card.locator("[data-testid=stCode]").filter(has_not_text="pip install").first
    setting.hover()
    setting.get_by_role("button", name="Copy to clipboard").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    card.get_by_text("All ways").click()
    table = card.get_by_role("table").nth(1)
    row = (
        table.get_by_role("row")
        .filter(has_text=re.compile("^(set|to store less): "))
        .get_by_role("cell")
        .all_inner_texts()
    )
    size = int(row[1].split()[0].replace(",", ""))
    way = Way(row[-1], size, 1, 1, size)
    settings = settings_of(way, 1000, "SmolLM2", estimated=False)  # of another share
    assert card.get_by_role("tab", name="to store less").count()
    commands = [line.partition("\n")[2] for line in settings.values()]
    assert copied.endswith(tuple(f"\n{command}" for command in commands))
    page.context.clear_permissions()
