"""What is lost today: presets, limits, and a count of values that calls need."""

from dataclasses import replace

import pandas as pd
import pytest

from fdkvc.conversations.formats import EXAMPLES, read_dialogs
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import Replay, replay_arguments
from fdkvc.conversations.tools import with_tools
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import read_policy
from fdkvc.policies.ways import MESSAGES
from fdkvc.verdict.search import REFUSED, cases_at
from fdkvc.verdict.sentences import today_notes, today_sentence
from fdkvc.verdict.today import PRESETS, Today, TodayLoss, ValueCount, lose_today
from tests.examples import dialogs_of

DIALOGS = dialogs_of("rental", "errands")
RECORDINGS = LexicalRecordings(DIALOGS, 0, Encoding())


def needed(dialogs: list[Transcript] = DIALOGS) -> int:
    return sum(demand.kind == "call" for dialog in dialogs for demand in dialog.demands)


@pytest.mark.parametrize("way", PRESETS)
def test_each_preset_loses_something_at_a_small_limit_and_nothing_at_a_large_one(way: str) -> None:
    loss = lose_today(Today(way, 600), RECORDINGS, workers=1)
    assert 0 < loss.count.lost < loss.count.values == needed()
    assert len(loss.worst)
    said = today_sentence(loss, "SmolLM2", 0.95)
    assert f"you lose {loss.count.lost} of {needed()} values" in said
    large = lose_today(Today(way, 100_000), RECORDINGS, workers=1)
    assert (large.count.lost, large.longer, len(large.worst)) == (0, 0, 0)
    said = today_sentence(large, "SmolLM2", 0.95)
    assert "nothing is lost at 100,000 tokens of SmolLM2" in said
    assert said.endswith(" Keep this limit.")
    assert read_policy(PRESETS[way].policy).name == PRESETS[way].policy


def test_an_engine_that_stops_serves_no_call_beyond_its_limit() -> None:
    (turns,) = LexicalRecordings(DIALOGS[:1], 0, Encoding()).sizes
    calls = [demand.turn for demand in DIALOGS[0].demands if demand.kind == "call"]
    middle = calls[len(calls) // 2]
    limit = sum(turns[: middle + 1])
    recordings = LexicalRecordings(DIALOGS[:1], 0, Encoding())
    loss = lose_today(Today("llama.cpp", limit), recordings, workers=1)
    assert loss.count.lost == sum(turn > middle for turn in calls)


@pytest.mark.parametrize("listed", [False, True])
def test_it_is_said_where_descriptions_of_tools_are_not_counted(listed: bool) -> None:
    dialogs = dialogs_of("errands")
    read = with_tools(dialogs)[0] if listed else dialogs
    loss = lose_today(Today("ollama", 600), LexicalRecordings(read, 0, Encoding()), workers=1)
    said = today_notes(loss, "SmolLM2")
    assert ("Tools described outside of the messages are not counted" in said) != listed


@pytest.mark.parametrize("missing", [0, 2])
def test_values_that_are_not_in_the_text_are_said_beside_those_that_are(missing: int) -> None:
    dialogs = [replace(dialog, missing=missing // len(DIALOGS)) for dialog in DIALOGS]
    for tokens in (600, 100_000):
        recordings = LexicalRecordings(dialogs, 0, Encoding())
        loss = lose_today(Today("ollama", tokens), recordings, workers=1)
        said = today_notes(loss, "SmolLM2")
        uncounted = "Not counted: 2 needed values that stand nowhere in the text"
        assert (uncounted in said) == bool(missing)


@pytest.mark.parametrize("calls", [False, True])
def test_that_earlier_calls_are_no_place_of_a_value_is_said(calls: bool) -> None:
    content = (EXAMPLES / "rental.json").read_bytes()
    dialogs, _ = read_dialogs(content, "rental.json", calls)
    recordings = LexicalRecordings(dialogs, 0, Encoding())
    for tokens, loses in ((600, True), (100_000, False)):
        loss = lose_today(Today("ollama", tokens), recordings, workers=1)
        said = today_notes(loss, "SmolLM2")
        is_said = "where only an earlier call still has it, it counts as lost" in said
        assert is_said == (loses and not calls)


def test_turns_that_services_refuse_are_counted_of_today_as_of_the_card() -> None:
    table, _ = replay_arguments(cases_at(Replay(), {MESSAGES: 600}), RECORDINGS, workers=1)
    refused = table[table.metric == REFUSED].value.mean()
    assert 0 < refused < 1
    assert lose_today(Today("ollama", 600), RECORDINGS, workers=1).refused == refused
    assert lose_today(Today("ollama", 100_000), RECORDINGS, workers=1).refused == 0
    assert lose_today(Today("streaming-llm", 600), RECORDINGS, workers=1).refused == 0


@pytest.mark.parametrize(
    ("text", "splits"),
    [("我想订两张二等座，最好是靠窗的位置。", True), ("A table for two, please.", False)],
)
def test_it_is_said_where_a_tokenizer_splits_the_letters_of_a_language(
    text: str, splits: bool
) -> None:
    dialog = Transcript("one", tuple(Turn("user", text * 9) for _ in range(9)))
    loss = lose_today(Today("ollama", 90), LexicalRecordings([dialog], 0, Encoding()), workers=1)
    said = today_notes(loss, "SmolLM2")
    assert ("tokens for a character of this text" in said) == splits
    assert ("choose whose tokens count" in said) == splits


@pytest.mark.parametrize("text", ["vllm", "ollama:0", "ollama:many", "ollama:2000000"])
def test_what_is_not_allowed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="today"):
        Today.read(text)


@pytest.mark.parametrize(
    ("way", "words"),
    [("ollama", "lose text of 2 of 3 conv"), ("llama.cpp", "2 of 3 conversations stop")],
)
def test_without_calls_a_limit_cuts_text_or_stops(way: str, words: str) -> None:
    nothing = ValueCount(0, 0, 0, 0)
    all_longer = TodayLoss(Today(way, 900), nothing, 3, 3, 1200, pd.DataFrame())
    assert words.replace("2 of 3", "all 3") in today_sentence(all_longer, "SmolLM2", 0.95)
    loss = TodayLoss(Today(way, 900), nothing, 2, 3, 1200, pd.DataFrame())
    assert words in today_sentence(loss, "SmolLM2", 0.95)


@pytest.mark.parametrize(("lossy", "among"), [(2, "in 2 of the 3"), (3, "in all 3")])
def test_what_is_lost_in_all_conversations_is_said_so(lossy: int, among: str) -> None:
    count = ValueCount(9, 40, lossy, 3)
    loss = TodayLoss(Today("ollama", 900), count, 3, 3, 1200, pd.DataFrame())
    said = today_sentence(loss, "SmolLM2", 0.95)
    assert f"{among} conversations that need some." in said
    assert "Nothing would be lost from 1,200 tokens of SmolLM2 on, the length of the" in said


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (0, "lose none of 40 values that calls need at 900 tokens of SmolLM2, though 1 of 3"),
        (2, "95 % are kept, and 95 % are asked: keep this limit."),
    ],
)
def test_a_limit_that_is_enough_says_so_and_what_exceeds_it(lost: int, said: str) -> None:
    count = ValueCount(lost, 40, lost, 3)
    loss = TodayLoss(Today("ollama", 900), count, 1, 3, 1200, pd.DataFrame())
    assert said in today_sentence(loss, "SmolLM2", 0.95)
    assert "eep this limit" not in today_sentence(loss, "SmolLM2", 1.01)
