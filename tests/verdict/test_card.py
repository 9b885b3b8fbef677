"""The card: which way and how many tokens, from tables made by hand."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pandas as pd
import pytest

import fdkvc
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import ARGUMENTS, REPLAYED, Replay
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.core.words import lost_likelihood, written_bytes
from fdkvc.policies import CANDIDATES, read_policy
from fdkvc.policies.ways import CLEARED, MESSAGES, USER_FIRST, unpinned, way_words
from fdkvc.verdict.card import Card, ModelRead, Reading, Way, find_card, forgets_most, ways_for
from fdkvc.verdict.model_shape import read_shape
from fdkvc.verdict.results import ReplayRun, card_text
from fdkvc.verdict.search import REFUSED, dialog_lengths, find_sizes, least_lengths
from fdkvc.verdict.sentences import (
    BY_WORDS,
    FEWER_RIGHT,
    GUESS,
    MEASURED,
    PARTLY,
    READ_AGAIN,
    SIZE,
    UNCOUNTED_TOOLS,
    UNREAD,
    VALUES_KEPT,
    card_grid,
    card_record,
    card_sentences,
    certainty,
    certainty_sentence,
    drawbacks,
    others_sentence,
    promise_sentence,
    setting_sentence,
    settings,
    short_grid,
    shown_ways,
    table_note,
    today_certainty,
)
from fdkvc.verdict.settings import SETTINGS, settings_of
from fdkvc.verdict.today import STOPS, Today, TodayLoss, ValueCount

SHAPE = read_shape("4x2x64x16")
SIZES = (100, 200, 400)
PINNED = "whitelist(sinks(weighted-recency), first=0, speaker=prompt)"
RECALL: Mapping[str, tuple[float, ...]] = {
    "fifo": (0.5, 0.92, 0.96),
    "h2o": (0.6, 0.955, 0.94),
    "sink": (0.8, 0.96, 0.995),
    "sinks(weighted-recency)": (0.96, 0.97, 0.99),
    "full": (1.0, 1.0, 1.0),
}


VALUES, CALLS = 125, 5
"""Needed in a dialog, by so many calls."""


def needs(
    recall: Mapping[str, tuple[float, ...]] = RECALL,
    clusters: int = 8,
    odd: tuple[float, ...] = (),
) -> pd.DataFrame:
    """Return the values that 8 dialogs need, of which shares are held; in every other one `odd`."""
    rows: list[tuple[Any, ...]] = []
    for policy, shares in recall.items():
        for place, size in enumerate(SIZES):
            for n in range(8):
                held = VALUES * (odd if odd and n % 2 else shares)[place]
                for value in range(VALUES):
                    call = value * CALLS // VALUES
                    need = (9, "book", call, "day", "x", "result", 1, 8)
                    kept = value < round(held * (n + 1)) - round(held * n)
                    of_dialog = (f"d{n}", f"c{n % clusters}", policy, size)
                    rows.append((*of_dialog, *need, float(kept), -1 if kept else 3))
    return pd.DataFrame(rows, columns=list(ARGUMENTS))


NO_METRICS = pd.DataFrame(columns=list(REPLAYED))


def card_of(
    recall: Mapping[str, tuple[float, ...]] = RECALL,
    values: pd.DataFrame | None = None,
    *,
    metrics: pd.DataFrame = NO_METRICS,
    lengths: Sequence[int] = (800, 1200),
    target: float = 0.95,
    read: ModelRead | None = None,
    least_lengths: Sequence[int] = (),
) -> Card:
    """Return the card of policies that hold these shares, or these values."""
    tables = metrics, needs(recall) if values is None else values
    given = [*map(read_policy, recall)], tables, lengths, SHAPE, target, "SmolLM2", read
    return find_card(*given, least_lengths=least_lengths)


def best_of(card: Card) -> Way:
    assert card.best is not None
    return card.best


def today_loss(today: str, lost: int, longest: int = 1200, longer: int = 3) -> TodayLoss:
    """Return what today's way loses of 1,000 values."""
    count = ValueCount(lost, 1000, 2, 8)
    return TodayLoss(Today.read(today), count, longer, 8, longest, pd.DataFrame())


def test_a_way_is_a_policy_at_its_smallest_size_that_holds_enough() -> None:
    card = card_of()
    sizes = {way.policy: way.size for way in card.ways}
    assert sizes == {
        "sinks(weighted-recency)": 100,
        "sink": 200,
        "fifo": 400,
        "h2o": None,  # it falls below again at 400
    }
    assert [*sizes] == ["sinks(weighted-recency)", "sink", "fifo", "h2o"]
    best = best_of(card)
    assert (best.policy, best.slots) == ("sinks(weighted-recency)", 100)
    assert best.forgets == "mostly old tool results"
    assert card_of(target=0.99).best == replace(card_of(target=0.99).ways[0])


def test_the_sentences_have_size_share_and_how_sure_that_is() -> None:
    lead, others, basis = card_sentences(card_of())
    assert "takes this project's cache in transformers" in others
    size = "100 tokens of SmolLM2 (10 % of the average conversation)"
    assert lead.startswith(f"Set {size}: evict entries")
    assert "kB" not in lead, "SmolLM2's tokens tell no bytes of another model"
    assert f"How sure: {BY_WORDS}. No model was run" in basis
    assert "it stands word for word in what stays" in basis
    assert "tuned on the Schema-Guided" in basis
    assert "asked: 95 %" in basis
    assert "Schema-Guided" not in card_sentences(card_of({"sink": (0.5, 0.96, 0.99)}))[-1]
    few = card_of(values=needs(clusters=3))
    assert certainty(few) == GUESS
    kinds = "8 conversations of 3 kinds (by task or services), and fewer than 4 kinds tell little"
    assert kinds in card_sentences(few)[-1]
    assert {row[3] for row in card_grid(few).rows} == {GUESS, f"{GUESS}: no model"}
    assert {way["how_sure"] for way in card_record(few)["ways"]} == {GUESS}
    counted = replace(card_of(), unit="tokenizer.json", own_tokens=True)
    assert "205 kB instead of 2.0 MB in 4x2x64x16" in card_sentences(counted)[0]


def test_a_limit_that_keeps_what_is_asked_is_said_to_before_a_smaller_one() -> None:
    card = card_of()
    assert best_of(card).values == ValueCount(40, 1000, 8, 8)
    for lost, words in (
        (31, "To store less than today, set 100"),
        (31, "which loses 40 of 1,000 values"),
        (51, "Instead of such a limit, set 100 tokens"),
    ):
        limited = replace(card, today=today_loss("ollama:900", lost))
        sentences = card_sentences(limited)
        assert f"lose {lost} of 1,000 values" in sentences[0]
        assert (
            "Nothing would be lost from 1,200 tokens of SmolLM2 on, the length of the longest"
            in sentences[0]
        )
        enough = "96.9 % are kept, and 95 % are asked: keep this limit."
        assert (enough in sentences[0]) == (lost < 50)
        assert words in setting_sentence(limited)
        lines = settings(limited)
        larger = "Ollama, for the longest conversation"
        if lost > 50:
            assert [*lines] == [larger, "transformers, instead"]
            assert "OLLAMA_CONTEXT_LENGTH=1200" in lines[larger]
        else:
            assert [*lines] == ["transformers, to store less"]


def card_with_today(today: str, lost: int, longest: int, longer: int = 3, **fields: Any) -> Card:
    """Return the card of a way at 100 tokens that loses 40 values, beside what today loses."""
    return replace(card_of(), today=today_loss(today, lost, longest, longer), **fields)


@pytest.mark.parametrize(("limit", "saved"), [(100, "no tokens"), (355, "255 tokens")])
def test_a_limit_that_is_enough_has_no_setting_beside_it_that_saves_too_little(
    limit: int, saved: str
) -> None:
    card = card_with_today(f"ollama:{limit}", 31, 1200)
    why = setting_sentence(card)
    assert why.startswith("To store less does not pay: ")
    assert f"would save {saved}, and under 256 tokens is too little" in why
    assert not settings(card)
    assert not any(":" in row[0] for row in card_grid(card).rows)
    assert [*settings(card_with_today("ollama:356", 31, 1200))] == ["transformers, to store less"]


def test_beside_a_limit_that_is_enough_the_way_that_saves_enough_is_set() -> None:
    """The way of engines pays against the whole text alone, this project's against the limit."""
    recall = {"sinks(weighted-recency)": (0.96, 0.97, 0.98), MESSAGES: (0.5, 0.6, 0.96)}
    card = card_of(recall | {USER_FIRST: (0.5, 0.6, 0.97)})
    card = replace(card, today=today_loss("ollama:450", 30), own_tokens=True)
    assert best_of(card).policy == MESSAGES
    lead = setting_sentence(card)
    others = others_sentence(card)
    assert "To store less than today, set 100 tokens" in lead
    bytes_of = card.shape.entry_bytes
    assert f"{written_bytes(100 * bytes_of)} instead of {written_bytes(450 * bytes_of)}" in lead
    assert "needs only" not in others
    assert "As good here" not in others, "that is of the engines' way"
    assert settings(card).keys() == {"transformers, to store less"}
    assert short_grid(card).rows[0][0].startswith("to store less: ")


def test_the_lines_to_copy_say_where_tools_are_not_among_the_tokens() -> None:
    loss = today_loss("ollama:900", 200)
    for without_tools in (False, True):
        card = replace(card_of(), today=replace(loss, without_tools=without_tools))
        for line in settings(card).values():
            assert (line.splitlines()[0] == UNCOUNTED_TOOLS) == without_tools


def test_a_limit_that_nothing_exceeds_is_certain_but_for_tools_that_are_not_counted() -> None:
    loss = replace(today_loss("ollama:900", 200), longer=0)
    for without_tools in (False, True):
        said = today_certainty(replace(card_of(), today=replace(loss, without_tools=without_tools)))
        assert said.startswith("How sure: certain, if")
        assert said.endswith("and the tools fit beside them.") == without_tools


def test_words_are_the_reason_where_a_model_has_read_at_another_limit() -> None:
    loss = replace(today_loss("ollama:900", 200), longer=1)
    assert loss.is_enough(0.5)
    read = ModelRead("SmolLM2", ("d0",), 900, {})
    for model, reader in ((None, "No model was run"), (read, "No model has read at this limit")):
        card = replace(card_of(read=model, target=0.5), today=loss)
        assert f"{reader}: a value counts as kept" in today_certainty(card)


def test_todays_row_has_its_turns_refused() -> None:
    loss = replace(today_loss("ollama:100", 200), refused=0.16)
    grid = short_grid(replace(card_of({MESSAGES: (0.5, 0.6, 0.96)}), today=loss))
    cells = {row[0]: row[grid.heads.index("drawback")] for row in grid.rows}
    assert cells["today: Drop oldest messages"] == "services refuse 16 % of requests"


def test_where_evicting_does_not_pay_a_limit_that_loses_nothing_is_set() -> None:
    card = card_with_today("ollama:900", 200, 1200, best=None)
    assert "Nothing would be lost from 1,200 tokens" in card_sentences(card)[0]
    assert "It does not pay to evict here" in setting_sentence(card)
    assert [*settings(card)] == ["Ollama, for the longest conversation"]
    assert "OLLAMA_CONTEXT_LENGTH=1200" in next(iter(settings(card).values()))


def test_a_larger_limit_is_set_beside_a_way_that_todays_engine_has_not() -> None:
    best = Way(MESSAGES, 300, 0.96, 300.0, 300)
    for today, lines in (
        ("llama.cpp:900", {"llama.cpp, for the longest conversation", "Ollama", "LangChain"}),
        ("ollama:900", {"Ollama, for the longest conversation", "Ollama", "LangChain"}),
    ):
        card = card_with_today(today, 200, 1200, best=best, ways=(best,))
        assert settings(card).keys() == lines
        assert setting_sentence(card).startswith("Or set 300")


def test_a_smaller_limit_that_is_enough_stores_less() -> None:
    short = card_with_today("ollama:1200", 0, 1200, longer=0)
    assert "To store less than today, set 100 tokens" in setting_sentence(short)
    assert [row[0].partition(":")[0] for row in short_grid(short).rows[:2]] == [
        "to store less",
        "today",
    ]


@pytest.mark.parametrize(
    ("today", "longest", "engine"),
    [
        ("llama.cpp", 5000, "llama.cpp"),
        ("langchain", 5000, "LangChain"),
        ("anthropic", 150_000, "Anthropic"),
        ("anthropic", 300_000, ""),  # beyond the service's window
        ("streaming-llm", 5000, ""),
    ],
)
def test_a_larger_limit_is_set_in_the_engine_of_today(
    today: str, longest: int, engine: str
) -> None:
    card = card_with_today(today, 200, longest)
    ours = "transformers, instead" if longest < 200_000 else "transformers"
    limit = [f"{engine}, for the longest conversation"] if engine else []
    assert [*settings(card)] == [*limit, ours]
    assert ("Nothing would be lost" in card_sentences(card)[0]) == (longest < 200_000)
    assert setting_sentence(card).startswith("Instead of" if longest < 200_000 else "Set 100")


def test_values_by_words_are_not_told_beside_a_size_that_a_model_found() -> None:
    card = card_of()
    assert "which loses 40 of" in setting_sentence(card)
    sized = replace(card, best=replace(best_of(card), sized_by_model=True))
    assert "which loses" not in setting_sentence(sized)


@pytest.mark.parametrize(
    ("values", "dialogs", "word"), [(20, 5, MEASURED), (19, 9, PARTLY), (90, 4, PARTLY)]
)
def test_twenty_values_in_five_conversations_are_a_measurement(
    values: int, dialogs: int, word: str
) -> None:
    reading = Reading(values, values, 0.01, dialogs)
    read = ModelRead("SmolLM2", tuple(map(str, range(9))), 900, {"sink": reading})
    assert certainty(card_of({"sink": (0.5, 0.96, 0.99)}, read=read)) == word


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((0.62, 1.0), "62 % to 100 %"),
        ((math.nan, math.nan), "too few conversations, or too unequal ones, for an interval"),
    ],
)
def test_a_reading_says_its_interval_or_that_there_is_none(
    interval: tuple[float, float], words: str
) -> None:
    reading = Reading(18, 20, 0.01, 5, *interval)
    read = ModelRead("SmolLM2", ("d0",), 900, {"sink": reading})
    card = card_of({"sink": (0.5, 0.96, 0.99)}, read=read)
    basis = certainty_sentence(card)
    assert f"18 of 20 values stay the same as with the full cache ({words})" in basis
    record = card_record(card)
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    ends = [record["ways"][0]["reading"][end] for end in ("low", "high")]
    assert ends == [None if math.isnan(end) else end for end in interval]


def test_what_engines_have_comes_first_and_the_smaller_way_is_offered_too() -> None:
    recall = {"sinks(weighted-recency)": (0.96, 0.97, 0.99), MESSAGES: (0.5, 0.96, 0.97)}
    card = card_of(recall | {USER_FIRST: (0.5, 0.97, 0.98)})
    best = best_of(card)
    assert (best.policy, best.size) == (MESSAGES, 200)
    assert card.smaller is not None
    assert card.smaller.policy == "sinks(weighted-recency)"
    assert [tie.policy for tie in card.ties] == [USER_FIRST]
    lead, others, _ = card_sentences(card)
    assert "drop oldest messages" in lead
    assert "As good here: “Drop oldest messages up to a user's”" in others
    assert "needs only 100 tokens (10 %)" in others
    assert {"Ollama", "transformers"} <= settings(card).keys()


@pytest.mark.parametrize("short", [MESSAGES, "sinks(weighted-recency)", USER_FIRST])
def test_a_way_of_which_a_model_got_less_than_asked_is_set_with_that_and_named_by_no_other(
    short: str,
) -> None:
    recall = {
        "sinks(weighted-recency)": (0.96, 0.97, 0.99),
        MESSAGES: (0.5, 0.96, 0.97),
        USER_FIRST: (0.5, 0.97, 0.98),
    }
    scores = {name: Reading(2 if name == short else 4, 4, 0.01, 2) for name in recall}
    card = card_of(recall, read=ModelRead("SmolLM2", ("d0", "d1"), 900, scores))
    assert best_of(card).policy == MESSAGES
    lead, others, _ = card_sentences(card)
    words = ", but SmolLM2 got only 2 of 4 values the same as with the full cache: too few for a "
    words += "measurement."
    assert (words in lead) == (short == MESSAGES)
    assert ("As good here" in others) == (short != USER_FIRST)
    assert ("needs only 100 tokens" in others) == (short in (MESSAGES, USER_FIRST))
    assert ("transformers" in settings(card)) == ("needs only" in others)
    del scores[USER_FIRST], scores["sinks(weighted-recency)"]
    alone = card_of(recall, read=ModelRead("SmolLM2", ("d0", "d1"), 900, scores))
    assert not others_sentence(alone), "what no model read is not named beside what one did"


def test_a_measured_way_below_the_target_is_set_with_how_many_values_stayed() -> None:
    scores = {"sink": Reading(18, 20, 0.01, 5)}
    card = card_of({"sink": (0.5, 0.96, 0.99)}, read=ModelRead("SmolLM2", ("d0",), 900, scores))
    lead = setting_sentence(card)
    assert lead.endswith(", but SmolLM2 got only 18 of 20 values the same as with the full cache.")


def test_clearing_that_is_not_enough_is_no_tie() -> None:
    recall = {MESSAGES: (0.5, 0.96, 0.97), CLEARED: (0.5, 0.97, 0.98)}
    for least, ties in (((100, 150), [CLEARED]), ((100, 300), [])):
        card = card_of(recall, least_lengths=least)
        assert best_of(card).policy == MESSAGES
        assert [tie.policy for tie in card.ties] == ties
        cleared = next(row for row in card.ways if row.policy == CLEARED)
        assert ("not enough alone" in drawbacks(card, cleared)) != bool(ties)


def test_no_clearing_removes_words_or_the_last_three_results() -> None:
    turns = [Turn("user", "go")]
    results = ("word " * (10 * number + 10) for number in range(5))
    turns += [Turn("tool", words, kind="result") for words in results]
    dialog = LexicalRecordings([Transcript("one", tuple(turns))])
    (words,) = dialog.sizes
    assert least_lengths(dialog) == (words[0] + sum(words[3:]),)


def test_of_one_size_the_simplest_comes_first() -> None:
    recall = {CLEARED: (0.5, 0.99, 0.99), "sink": (0.5, 0.96, 0.97), MESSAGES: (0.5, 0.95, 0.96)}
    card = card_of(recall)
    assert [way.policy for way in card.ways] == [MESSAGES, "sink", CLEARED]


def test_where_nearly_all_is_needed_it_does_not_pay() -> None:
    for tokens, pays in ((460, False), (650, False), (660, True)):
        card = card_of({"sink": (0.1, 0.2, 0.96)}, lengths=[tokens])
        assert (card.advice.setting is not None) == pays
        assert ("does not pay" in card_sentences(card)[0]) != pays
        assert ("under 256 tokens" in card_sentences(card)[0]) != pays
    never = card_of({"sink": (0.1, 0.2, 0.3)})
    assert never.best is None
    assert "keep all tokens (1,000 on average): no way tried keeps 95 %" in card_sentences(never)[0]
    assert "at best 30 %" in table_note(never)
    nearly = card_of({"sink": (0.1, 0.2, 0.949)})
    assert "at best 94.9 %" in table_note(nearly)


def test_what_looks_at_vectors_is_a_guess_until_a_model_has_read() -> None:
    recall = {"sinks(h2o)": (0.97, 0.98, 0.99), "sink": (0.5, 0.96, 0.97)}
    card = card_of(recall)
    assert best_of(card).policy == "sink"
    assert [row[0] for row in short_grid(card).rows] == ["set: Sink+Window"]
    assert short_grid(card).heads == ["way", VALUES_KEPT, SIZE, "drawback"], (
        "the rest is said above"
    )
    assert [row[0] for row in card_grid(card).rows] == ["H2O + sinks", "set: Sink+Window"]
    assert not table_note(card)
    scores = {"sinks(h2o)": Reading(20, 20, 0.01, 5), "sink": Reading(10, 20, 0.5, 5)}
    read = short_grid(card_of(recall, read=ModelRead("SmolLM2", ("d0",), 900, scores)))
    first = dict(zip(read.heads, read.rows[0], strict=True))
    assert first["way"] == "set: H2O + sinks"
    assert first["how sure"] == "measured: 20 of 20 the same"


def test_a_way_that_keeps_the_first_tokens_comes_before_one_that_does_not() -> None:
    for sizes, best in (((0.5, 0.96, 0.97), "sink"), ((0.5, 0.6, 0.7), "fifo")):
        card = card_of({"fifo": (0.97, 0.98, 0.99), "sink": sizes})
        assert best_of(card).policy == best


@pytest.mark.parametrize(
    ("kl", "right", "best"),
    [
        ((0.10, 0.05), (19, 20), "sinks(weighted-recency)"),
        ((0.40, 0.05), (19, 20), "sink"),
        ((0.10, 0.05), (15, 20), "sink"),
    ],
)
def test_the_model_decides(kl: tuple[float, ...], right: tuple[int, ...], best: str) -> None:
    names = ("sinks(weighted-recency)", "sink")
    scores = {
        name: Reading(kept, 20, lost, 4) for name, kept, lost in zip(names, right, kl, strict=True)
    }
    read = ModelRead("SmolLM2", ("d0", "d1", "d2", "d3"), 2900, scores, unread=2)
    card = card_of(read=read)
    assert best_of(card).policy == best
    basis = card_sentences(card)[-1]
    assert "SmolLM2 has read 4 of 6 conversations" in basis
    assert f"{right[names.index(best)]} of 20 values" in basis
    assert ("by words it would be" in basis) == (best == "sink")
    assert "fewer than" not in basis


def test_what_evicts_from_fewer_dialogs_loses_nothing_in_the_others() -> None:
    scores = {"sinks(weighted-recency)": Reading(10, 20, 0.4, 4), "sink": Reading(3, 4, 0.4, 1)}
    read = ModelRead("SmolLM2", ("d0", "d1", "d2", "d3"), 2900, scores)
    card = card_of(read=read)
    assert best_of(card).policy == "sink", (
        "0.1 nats and 1 value lost over all four, against 0.4 and 10"
    )
    assert "fewer than the 95 % asked" in card_sentences(card)[-1]


def test_a_very_small_size_says_why_it_is_enough() -> None:
    recall = {"shift": (0.96, 1.0, 1.0), "fifo": (0.5, 0.6, 0.7)}
    card = card_of(recall)
    assert best_of(card).size == SIZES[0] <= 100
    said = certainty_sentence(card)
    assert (
        f"960 of 1,000 values that calls need stood in the {SIZES[0]} tokens that it keeps" in said
    )
    assert "so small" not in certainty_sentence(card_of({"shift": (0.5, 0.96, 0.96)}))


def test_a_model_that_finds_sizes_decides_by_them() -> None:
    scores = {name: Reading(19, 20, 0.01, 5) for name in RECALL}
    sizes: dict[str, int | None] = {"sinks(weighted-recency)": 400, "sink": 200, "fifo": None}
    read = ModelRead("SmolLM2", ("d0", "d1"), 900, scores, sizes=sizes)
    card = card_of(read=read)
    best = best_of(card)
    assert (best.policy, best.size, best.sized_by_model) == ("sink", 200, True)
    assert card.by_words is not None
    assert (card.by_words.policy, card.by_words.size) == ("sinks(weighted-recency)", 100)
    assert card.promise is None, "words promise nothing of a size that they did not choose"
    said = certainty_sentence(card)
    assert "the model found this size" in said
    assert "with 100 tokens" in said
    sized = {way.policy: way.size for way in card.ways}
    assert (sized["fifo"], sized["sinks(weighted-recency)"]) == (None, 400)
    none = dict.fromkeys(sizes)
    assert card_of(read=replace(read, sizes=none)).best is None
    others_lose = card_of(read=replace(read, sizes={"fifo": None}))
    assert others_lose.best == others_lose.ways[0], "the way by words was not among those sized"
    assert "FIFO (not enough as the model reads it)" in table_note(others_lose)


def test_one_value_of_twenty_decides_nothing() -> None:
    for wrong, best in ((2, "sinks(weighted-recency)"), (3, "sink")):
        scores = {
            "sinks(weighted-recency)": Reading(40 - wrong, 40, 0.1, 1),
            "sink": Reading(40, 40, 0.1, 1),
        }
        card = card_of(read=ModelRead("SmolLM2", ("d0",), 900, scores))
        assert best_of(card).policy == best


@pytest.mark.parametrize(("values", "best"), [(9, "sinks(weighted-recency)"), (10, "sink")])
def test_nine_values_change_no_way(values: int, best: str) -> None:
    scores = {
        "sinks(weighted-recency)": Reading(5, values, 0.9, 2),
        "sink": Reading(values, values, 0.1, 2),
    }
    card = card_of(read=ModelRead("SmolLM2", ("d0", "d1"), 900, scores))
    assert best_of(card).policy == best


def test_what_is_forgotten_most_is_named_by_kind_and_age() -> None:
    lost = pd.DataFrame({"held": [0.0] * 3, "source": ["user", "result", "result"]})
    assert forgets_most(lost.assign(age=[1, 8, 8])) == "mostly old tool results"
    assert forgets_most(lost.assign(age=[8, 1, 1])) == "mostly recent tool results"
    said = lost.assign(source="user", age=8)
    assert forgets_most(said) == "mostly old words of the user"


def test_a_model_that_does_not_contradict_the_words_changes_nothing() -> None:
    scores = {"fifo": Reading(20, 20, 0.12, 1), "sink": Reading(20, 20, 0.05, 1)}
    recall = {"fifo": (0.97, 0.98, 0.99), "sink": (0.5, 0.96, 0.97)}
    card = card_of(recall, read=ModelRead("SmolLM2", ("d0",), 900, scores))
    assert card.best == card.by_words
    assert best_of(card).policy == "sink"


@pytest.mark.parametrize(
    ("kl", "best", "promised"), [(0.12, "sink", True), (0.4, "sinks(h2o)", False)]
)
def test_letters_recommend_nothing_unless_a_model_contradicts_the_words(
    kl: float, best: str, promised: bool
) -> None:
    recall = {"sinks(h2o)": (0.97, 0.98, 0.99), "sink": (0.5, 0.96, 0.97)}
    scores = {"sinks(h2o)": Reading(20, 20, 0.05, 1), "sink": Reading(20, 20, kl, 1)}
    card = card_of(recall, read=ModelRead("SmolLM2", ("d0",), 900, scores))
    assert (best_of(card).policy, card.promise is not None) == (best, promised)
    assert ("estimated without a model" in card_sentences(card)[-1]) != promised


def test_what_is_promised_is_of_the_way_that_a_model_chose() -> None:
    recall = {"sinks(weighted-recency)": (0.96, 0.97, 0.99), "sink": (0.8, 0.98, 0.995)}
    scores = {"sinks(weighted-recency)": Reading(9, 20, 0.8, 1), "sink": Reading(20, 20, 0.1, 1)}
    card = card_of(recall, read=ModelRead("SmolLM2", ("d0",), 900, scores))
    assert best_of(card).policy == "sink"
    for promise, mean in ((card.promise, 0.98), (card_of(recall).promise, 0.96)):
        assert promise is not None
        assert promise.mean == pytest.approx(mean, abs=0.005)


def test_what_is_promised_is_of_conversations_that_did_not_choose() -> None:
    # On one half of the clusters the small size is enough, on the other it is not.
    recall = {"sink": (0.97, 0.98, 0.99)}
    card = card_of(recall, needs(recall, odd=(0.5, 0.98, 0.99)))
    assert best_of(card).size == 200
    assert card.promise is not None
    # The good half chooses 100, told of the bad one; that chooses 200, told of the good one.
    assert card.promise.mean == pytest.approx((0.5 + 0.98) / 2, abs=0.01)
    assert card.promise.low < 0.6 < 0.9 < card.promise.high
    certain = card_of({"sink": (1.0, 1.0, 1.0)}).promise
    assert certain is not None
    assert 0.85 < certain.low < 0.95 < certain.high == 1, "no interval has no width"


def test_nothing_is_promised_of_clearing_that_is_mostly_not_enough() -> None:
    recall = {MESSAGES: (0.5, 0.96, 0.97), CLEARED: (0.97, 0.98, 0.99)}
    card = card_of(recall, least_lengths=[300])
    assert best_of(card).policy == MESSAGES
    assert card.promise is not None
    assert card.promise.mean == pytest.approx(0.96, abs=0.005), "of messages, not of clearing"


def test_nothing_is_promised_where_half_of_the_conversations_choose_nothing() -> None:
    recall = {"sink": (0.92, 0.97, 0.98)}
    card = card_of(recall, needs(recall, odd=(0.88, 0.93, 0.94)))
    assert card.best is not None
    assert card.promise is None, "one half reaches the target at no size"
    assert "that did not choose it" not in card_sentences(card)[-1]


def dominated(share: float, large: int) -> pd.DataFrame:
    """Return the needed values of 8 dialogs, of which the first `large` have this share of all.

    The large ones are of one cluster.
    """
    table = needs()
    is_large = table.dialog.isin([f"d{n}" for n in range(large)])
    room = (1 - share) / share * VALUES / (8 - large)
    place = table.groupby(["dialog", "policy", "budget"]).cumcount()
    table.loc[is_large, "services"] = "c0"
    return table[(is_large & (place < VALUES / large)) | (~is_large & (place < room))]


@pytest.mark.parametrize(("share", "known"), [(0.75, True), (0.85, True), (0.95, False)])
@pytest.mark.parametrize("large", [1, 2])
def test_where_one_conversation_has_nearly_all_values_nothing_is_known_of_others(
    share: float, known: bool, large: int
) -> None:
    read = ModelRead("SmolLM2", ("d0",), 900, {"sink": Reading(30, 30, 0.01, 5)})
    for reader in (None, read):
        card = card_of(values=dominated(share, large), read=reader)
        basis = certainty_sentence(card)
        assert (card.promise is not None) == known
        assert (certainty(card) != GUESS) == known
        assert ("little is known of others" in basis) != known
        who = "one conversation has"
        if large > 1:
            who = "2 conversations of one task or the same services have"
        assert (who in basis.lower()) != known


def test_conversations_with_one_set_of_tools_count_one_by_one() -> None:
    values = needs(clusters=1)
    assert card_of(values=values).promise == card_of().promise
    card = card_of({"sink": ()}, values[values.dialog.isin(["d0", "d1", "d2"])])
    assert (card.promise, certainty(card)) == (None, GUESS)
    assert "3 conversations of 1 kind (by task or services)" in certainty_sentence(card)
    values = needs()
    card = card_of({"sink": ()}, values[values.dialog.isin(["d0", "d1"])])
    assert "rests on 2 conversations, and fewer than 4 tell little" in certainty_sentence(card)


def test_nothing_is_promised_of_a_way_that_is_not_set() -> None:
    assert "that did not choose it" in promise_sentence(card_of())
    assert "get 85 % (74 % to 87 %) of the values as with" in promise_sentence(card_of())
    read = ModelRead("SmolLM2", ("d0",), 900, {"sink": Reading(20, 20, 0.01, 5)})
    measured = promise_sentence(card_of({"sink": (0.5, 0.96, 0.99)}, read=read))
    assert "that did not choose it" in measured
    assert FEWER_RIGHT not in measured
    assert not promise_sentence(card_with_today("ollama:100", 31, 1200))


@pytest.mark.parametrize(("kl", "best"), [(0.05, "sink"), (0.3, None)])
def test_only_a_model_tells_of_conversations_without_calls(kl: float, best: str | None) -> None:
    given = dict.fromkeys(("fifo", "sinks(fifo)", "sink"), ()), needs()[:0]
    card = card_of(*given, lengths=(900, 1000, 1100))
    assert "only a model can tell" in card_sentences(card)[0]
    assert (card.best, card.promise) == (None, None)
    assert [(way.policy, way.size) for way in card.ways] == [("sink", 250), ("sinks(fifo)", 250)]
    scores = {"sinks(fifo)": Reading(0, 0, 0.4, 2), "sink": Reading(0, 0, kl, 2)}
    reader = ModelRead("SmolLM2", ("d0", "d1"), 900, scores, partly_read=1)
    read = card_of(*given, lengths=(900, 1000, 1100), read=reader)
    assert (card_record(read)["best"] or {"policy": None})["policy"] == best
    lead, *_, basis = card_sentences(read)
    assert ("does not pay" in lead) == (best is None)
    assert certainty(read) == PARTLY
    assert "SmolLM2 has read 2 of 2 conversations" in basis
    assert "1 in part" in basis
    assert [row[-3] for row in card_grid(read).rows] == [lost_likelihood(kl), "33 %"]


def test_without_calls_the_simplest_way_is_set_of_those_that_lose_hardly_more() -> None:
    for kl, best in ((0.12, MESSAGES), (0.2, "sinks(weighted-recency)")):
        scores = {"sinks(weighted-recency)": Reading(0, 0, 0.05, 2), MESSAGES: Reading(0, 0, kl, 2)}
        read = ModelRead("SmolLM2", ("d0", "d1"), 900, scores)
        card = card_of(dict.fromkeys(scores, ()), needs()[:0], read=read)
        assert best_of(card).policy == best
        said = card_sentences(card)[1]
        assert ("As good here" in said) == (best == MESSAGES)
        lack = "Why no way of an engine: “Drop oldest messages” (a model loses more)"
        assert (lack in said) == (best != MESSAGES)


@pytest.mark.parametrize(("limit", "keeps"), [(300, True), (200, False)])
def test_without_calls_a_limit_that_a_model_found_enough_is_not_lowered(
    limit: int, keeps: bool
) -> None:
    read = ModelRead("SmolLM2", ("d0",), 900, {MESSAGES: Reading(0, 0, 0.05, 1)})
    card = card_of({MESSAGES: ()}, needs()[:0], read=read)
    today = Today("ollama", limit)
    nothing = ValueCount(0, 0, 0, 0)
    card = replace(card, today=TodayLoss(today, nothing, 3, 3, 1200, pd.DataFrame()))
    assert best_of(card).tried == 250
    said = " ".join(card_sentences(card))
    assert ("Keep this limit: at 250 tokens, by the same way, the words that" in said) == keeps
    assert said.count("become 5 % less likely") == 1 + keeps
    assert ("Set 250 tokens" in said) != keeps
    assert bool(settings(card)) != keeps


def test_without_calls_the_card_says_no_more_than_what_was_read() -> None:
    ways = (MESSAGES, "sinks(fifo)", "sinks(weighted-recency)", "sinks(h2o)")
    scores = {name: Reading(0, 0, 0.08, 2) for name in (*ways[:2], ways[3])}
    read = ModelRead("SmolLM2", ("d0", "d1"), 900, scores)
    card = card_of(dict.fromkeys(ways, ()), needs()[:0], read=read)
    assert [tie.policy for tie in card.ties] == ["sinks(fifo)"]
    basis = certainty_sentence(card)
    assert "under “Drop oldest messages” the words that the full cache expects become 8 %" in basis
    assert "a measurement needs" not in basis
    sure = short_grid(card).heads.index("how sure")
    assert [row[sure] for row in short_grid(card).rows] == [PARTLY, PARTLY, PARTLY, UNREAD]


@pytest.mark.parametrize(
    ("policy", "shares", "lack"),
    [
        (MESSAGES, (0.5, 0.6, 0.7), "under 95 % of the values kept with up to 85 % of the average"),
        ("shift", (0.5, 0.6, 0.97), "the first tokens lost, which a model needs"),
        (MESSAGES, (0.5, 0.6, 0.97), "under 256 tokens saved"),
    ],
)
def test_what_each_way_of_engines_lacks_is_said(
    policy: str, shares: tuple[float, ...], lack: str
) -> None:
    recall = {"sinks(weighted-recency)": (0.96, 0.97, 0.98), policy: shares}
    card = card_of(recall, lengths=[600])
    assert f"Why no way of an engine: “{way_words(policy)}” ({lack})" in card_sentences(card)[1]


def test_the_table_the_record_and_the_setting_say_the_same() -> None:
    card = card_of()
    grid, record = card_grid(card), card_record(card)
    assert [row[-1] for row in grid.rows] == [way["policy"] for way in record["ways"]]
    assert [row[1] for row in grid.rows][:3] == ["100 (10 %)", "200 (20 %)", "400 (40 %)"]
    assert record["best"]["size"] == 100
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    best = best_of(card)
    assert settings_of(best, 1000, "SmolLM2", estimated=True) == settings(card)
    assert settings(card) == record["settings"]
    assert not settings(replace(card, tokens=1.1 * best.slots))  # where it does not pay
    assert len({*map(way_words, CANDIDATES)}) == len(CANDIDATES)


def refused(recall: Mapping[str, tuple[float, ...]], policy: str, share: float) -> Card:
    """Return a card of which services refuse what one way leaves, after a share of turns."""
    rows = [("d0", "c0", policy, size, REFUSED, share) for size in SIZES]
    return card_of(recall, metrics=pd.DataFrame(rows, columns=list(REPLAYED)))


def test_a_way_that_services_refuse_comes_last_of_one_size_and_is_not_as_good() -> None:
    recall = {MESSAGES: (0.97, 0.98, 0.99), USER_FIRST: (0.96, 0.97, 0.98)}
    for share, policy in ((0.0, MESSAGES), (0.97, USER_FIRST)):
        card = refused(recall, MESSAGES, share)
        assert (best_of(card).policy, best_of(card).size) == (policy, 100)
        assert [tie.policy for tie in card.ties] == [USER_FIRST] * (not share)
    assert not refused(recall, USER_FIRST, 0.97).ties


@pytest.mark.parametrize(("right", "ties"), [(19, [USER_FIRST]), (15, [])])
def test_a_way_under_which_a_model_gets_more_values_wrong_is_not_as_good(
    right: int, ties: list[str]
) -> None:
    recall = {MESSAGES: (0.97, 0.98, 0.99), USER_FIRST: (0.96, 0.97, 0.98)}
    scores = {MESSAGES: Reading(20, 20, 0.05, 4), USER_FIRST: Reading(right, 20, 0.05, 4)}
    card = card_of(recall, read=ModelRead("SmolLM2", ("d0", "d1", "d2", "d3"), 900, scores))
    assert [tie.policy for tie in card.ties] == ties


@pytest.mark.parametrize(("share", "shown"), [(0.97, "97 %"), (0.001, "under 1 %")])
def test_the_lead_says_that_services_refuse_the_recommended_way(share: float, shown: str) -> None:
    recall = {MESSAGES: (0.97, 0.98, 0.99), USER_FIRST: (0.9, 0.97, 0.98)}
    card = refused(recall, MESSAGES, share)
    said = card_sentences(card)[1]
    assert f"After {shown} of the turns" in said
    assert f"services refuse {shown} of requests" in [row[-1] for row in short_grid(card).rows]
    assert "services such as OpenAI's refuse it" in said
    assert "refuse it" not in " ".join(card_sentences(refused(recall, USER_FIRST, share)))


def snippets(policy: str, size: int = 1150) -> dict[str, str]:
    """Return what sets a way, for conversations of 10,000 tokens on average."""
    return settings_of(Way(policy, size, 0.96, size, size), 10_000, "SmolLM2", estimated=False)


@pytest.mark.parametrize(
    ("policy", "engines"),
    [
        ("sinks(weighted-recency)", ["transformers"]),
        ("shift", ["llama.cpp"]),
        (STOPS, ["llama.cpp"]),
        (MESSAGES, ["Ollama", "LangChain"]),
        (USER_FIRST, ["LangChain"]),
        (CLEARED, ["Anthropic", "LangChain"]),
    ],
)
def test_a_way_is_set_by_lines_of_each_engine_that_has_it(policy: str, engines: list[str]) -> None:
    lines = snippets(policy)
    assert [*lines] == engines
    assert {*SETTINGS} <= {"shift", STOPS, MESSAGES, USER_FIRST, CLEARED}, "each has its test"
    for snippet in lines.values():
        comment, *code = snippet.splitlines()
        assert comment == "# 1,150 tokens of SmolLM2, 12 % of the average conversation"
        assert sum(line.count("1150") for line in code) == 1


def test_the_lines_for_this_projects_cache_run() -> None:
    """With a model, its tokenizer and a turn; with real ones, beside the tests of that cache."""
    caches, model = Mock(), Mock()
    with patch.dict(vars(fdkvc), PolicyCache=caches):
        exec(snippets(PINNED)["transformers"], {"model": model, "tokenizer": None, "turn": {}})
    assert caches.call_args.args[1] == 1150
    assert model.generate.call_args.kwargs == {"cache": caches.return_value}


def test_the_commands_are_as_documented() -> None:
    shift, ollama = snippets("shift")["llama.cpp"], snippets(MESSAGES)["Ollama"]
    words = [shlex.split(line, comments=True) for line in (shift, ollama)]
    assert words[0] == ["llama-server", "--context-shift", "--ctx-size", "1150"]
    assert words[1] == ["OLLAMA_CONTEXT_LENGTH=1150", "ollama", "serve"]


def test_what_clears_results_is_as_documented() -> None:
    lines = snippets(CLEARED)
    given = eval(f"dict(\n{lines['Anthropic']}\n)")
    trigger = {"type": "input_tokens", "value": 1150}
    keep = {"type": "tool_uses", "value": read_policy(CLEARED).settings["keep"].default}
    edit = {"type": "clear_tool_uses_20250919", "trigger": trigger, "keep": keep}
    assert given["context_management"] == {"edits": [edit]}
    assert given["betas"] == ["context-management-2025-06-27"]

    def clear_tool_uses(*, trigger: int = 100_000, keep: int = 3) -> tuple[int, int]:
        return trigger, keep

    def context_editing(*, edits: list[Any], token_count_method: str) -> tuple[Any, str]:
        return edits, token_count_method

    names = {"ClearToolUsesEdit": clear_tool_uses, "ContextEditingMiddleware": context_editing}
    edits, method = eval(lines["LangChain"], names)
    assert method in ("approximate", "model")
    assert edits == [(1150, read_policy(CLEARED).settings["keep"].default)]


@pytest.mark.parametrize("policy", [MESSAGES, USER_FIRST])
def test_langchains_lines_say_that_only_the_system_prompt_may_stay(policy: str) -> None:
    comments = [line for line in snippets(policy)["LangChain"].splitlines() if line[0] == "#"]
    assert "nothing but the system prompt may stay" in " ".join(comments)


@pytest.mark.parametrize("policy", [MESSAGES, USER_FIRST])
def test_langchain_keeps_what_a_service_takes(policy: str) -> None:
    library: Any = pytest.importorskip("langchain_core.messages", reason="it is not installed")
    call = {"name": "find", "args": {}, "id": "1"}
    said = [
        library.SystemMessage("be kind"),
        library.HumanMessage("find a table please"),
        library.AIMessage("I look", tool_calls=[call]),
        library.ToolMessage("one at eight and one at nine", tool_call_id="1"),
        library.AIMessage("at eight or nine"),
        library.HumanMessage("at eight then"),
        library.AIMessage("booked"),
    ]

    def model(messages: list[Any]) -> int:
        """Count words, as a model counts tokens."""
        return sum(len(str(message.content).split()) for message in messages)

    names = {"trim_messages": library.trim_messages, "messages": said, "model": model}
    lengths = set()
    for size in range(1, model(said) + 1):
        kept = eval(snippets(policy, size)["LangChain"], names)
        assert kept in ([], said[:1], [said[0], *said[5:]], said)
        lengths.add(len(kept))
    assert lengths >= {1, 3, 7}


@pytest.mark.parametrize("policy", ["reread(clear-results)", PINNED])
def test_a_terminal_has_few_lines_that_can_be_copied(policy: str) -> None:
    best = Way(policy, 300, 0.96, 300.0, 300, reread=53_116)
    others = [replace(best, policy=name, size=None) for name in CANDIDATES]
    card = replace(card_of(values=needs(clusters=3)), ways=(best, *others), best=best)
    lines = card_text(card).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    for setting in settings(card).values():
        for line in setting.splitlines():
            copied = " ".join(" ".join(lines).split())
            assert " ".join(line.split()) in copied


def test_the_file_of_a_plan_has_what_a_model_lost() -> None:
    settings = Replay(tuple(map(read_policy, RECALL)), SIZES)
    spoken = LexicalRecordings([Transcript("one", (Turn("user", "a table for two " * 90),))])
    read = ModelRead("SmolLM2", ("d0",), 900, {"sink": Reading(4, 5, 0.1, 1)})
    run = ReplayRun(settings, spoken, NO_METRICS, needs(), 1.0, "0", shape=SHAPE, read=read)
    plan = run.tables["plan.csv"].set_index("policy")
    assert plan["reading.right"]["sink"] == 4
    assert plan["reading.kl"].dropna().to_dict() == {"sink": 0.1}
    assert "reading" not in plan


@pytest.mark.parametrize("policy", ["shift", CLEARED, USER_FIRST, "sink"])
@pytest.mark.parametrize("today", ["", "ollama", "anthropic", "llama.cpp", "langchain"])
def test_the_table_has_the_ways_of_the_picture(policy: str, today: str) -> None:
    """Also those that are never enough, with that as their drawback."""
    enough = dict.fromkeys((MESSAGES, "shift", "sink", CLEARED, USER_FIRST), (0.5, 0.6, 0.7))
    card = card_of(enough | {policy: (0.5, 0.96, 0.97), "sinks(learned)": (0.96, 0.97, 0.98)})
    if today:
        card = replace(card, today=today_loss(today, 300))
    ways = shown_ways(card)
    rows = short_grid(card).rows
    assert len(rows) == len(ways) + bool(today) <= 6
    names = [row[0].partition(": ")[-1] or row[0] for row in rows if "today: " not in row[0]]
    assert names == [way_words(row.policy) for row in ways]
    assert {policy, *card.advice.offered} <= {row.policy for row in ways} | {*ways}
    never = [row for row in ways if row.size is None]
    assert sum("under 95 %" in row[-1] for row in rows) == len(never)
    for way in ways:
        assert ("loses the first tokens" in drawbacks(card, way)) == (way.policy == "shift")
    if today in ("ollama", "anthropic", "langchain"):
        assert Today.read(today).policy in {row.policy for row in ways}


def test_beside_what_a_model_read_words_are_told_of_the_recommended_way_alone() -> None:
    """Not of a smaller one that is set since that one saves too little beside today's limit."""
    recall = {MESSAGES: (0.5, 0.6, 0.96), "sinks(weighted-recency)": (0.96, 0.97, 0.98)}
    scores = {name: Reading(30, 30, 0.01, 5) for name in recall}
    sizes: dict[str, int | None] = {MESSAGES: 400, "sinks(weighted-recency)": 100}
    for found_sizes, words in (({}, "its size is by words"), (sizes, "the model found this size")):
        read = ModelRead("SmolLM2", ("d0",), 900, scores, sizes=found_sizes)
        card = card_of(recall, read=read)
        smaller = replace(card, today=today_loss("ollama:450", 30))
        assert smaller.main_way == card.smaller != card.best
        basis = certainty_sentence(smaller)
        assert words in basis
        assert "by words it would be" not in basis
        assert "words gave" not in basis
        assert ("words gave the same" in certainty_sentence(card)) == bool(found_sizes)


def test_without_a_way_nothing_is_said_of_its_size() -> None:
    sizes = dict.fromkeys(RECALL)
    scores = {name: Reading(3, 30, 1.0, 5) for name in RECALL}
    card = card_of(read=ModelRead("SmolLM2", ("d0",), 900, scores, sizes=sizes))
    assert card.best is None
    basis = certainty_sentence(card)
    assert "its size" not in basis
    assert "by words it would be “Weighted recency + sinks” with 100 tokens" in basis


def test_without_calls_what_is_read_again_and_refused_is_known() -> None:
    names = (MESSAGES, "sinks(fifo)")
    talk = [Turn(("user", "assistant")[turn % 2], "a table for two " * 9) for turn in range(9)]
    recordings = LexicalRecordings([Transcript(name, tuple(talk)) for name in "abcd"])
    settings = Replay(tuple(map(read_policy, names)), (1,))
    tables = find_sizes(settings, recordings, 0.95, workers=1)
    assert tables[1].empty
    scores = {name: Reading(0, 0, 0.05, 4) for name in names}
    read = ModelRead("SmolLM2", ("a",), 900, scores)
    lengths = dialog_lengths(recordings)
    card = find_card(settings.policies, tables, lengths, SHAPE, 0.95, "SmolLM2", read)
    reread = {row.policy: row.reread for row in card.ways}
    assert reread[MESSAGES] > 0
    assert math.isnan(reread["sinks(fifo)"]), "its keys stay"
    grid = short_grid(card)
    column = grid.heads.index(READ_AGAIN)
    cells = {row[0].removeprefix("set: "): row[column] for row in grid.rows}
    assert cells[way_words(MESSAGES)] == f"{reread[MESSAGES]:,.0f}"
    assert {row.size for row in card.ways} == {*tables[0].budget}


def test_what_is_compared_fits_the_dialogs() -> None:
    prompt = Turn("system", "Be kind", kind="system")
    talk = (prompt, *(Turn("user", "a table for two please " * 40) for _ in range(4)))
    names = [row.name for row in ways_for(LexicalRecordings([Transcript("one", talk)]))]
    assert names[:-1] == [*CANDIDATES]
    assert unpinned(names[-1]) == "sinks(weighted-recency)" != names[-1]
    spoken = LexicalRecordings([Transcript("one", talk[1:])])
    assert [row.name for row in ways_for(spoken)] == [*CANDIDATES]
