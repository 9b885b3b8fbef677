"""Ways to fit a conversation, beside plain lists of messages that are cut by hand."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.replay import Replay, replay
from fdkvc.core.attention import KINDS
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import Call, Transcript, Turn
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.simulate import simulate
from fdkvc.explain.decisions import explain, sentences
from fdkvc.policies import Policy, policy_named, read_policy
from fdkvc.policies.base import Available


@dataclass
class Message:
    """A message of a conversation: its words are numbers."""

    kind: str
    words: list[int]
    tool: str = ""
    key: int = 0


def conversation(kinds: Sequence[tuple[str, int]]) -> Transcript:
    """Return a conversation with messages of these kinds and numbers of words."""
    turns, calls = [], []
    for number, (kind, words) in enumerate(kinds):
        text = " ".join(f"w{number}x{word}" for word in range(words))
        if kind.startswith("call"):
            calls.append(Call(number, kind.partition(" ")[2] or "find", ()))
            name = calls[-1].method
            text = f'{{"name": "{name}", "arguments": {{}}}}'
            turns.append(Turn("assistant", text, call_characters=len(text)))
        elif kind == "result":
            turns.append(Turn("tool", text, kind="result"))
        elif kind == "system":
            turns.append(Turn("system", text, kind="system"))
        else:
            turns.append(Turn(kind, text))
    return Transcript("a conversation", tuple(turns), calls=tuple(calls), calls_in_text=True)


def messages_of(recording: Recording) -> list[Message]:
    """Return the messages of a recording with the numbers of their tokens."""
    found, tool = [], ""
    for number, (turn, start, end) in enumerate(
        zip(recording.transcript.turns, recording.starts, recording.starts[1:], strict=False)
    ):
        kind = recording.transcript.span_kind(number, 0)
        if turn.call_characters:
            tool = turn.text.split('"')[3]
        found.append(Message(kind, [*range(start, end)], tool, key=number))
        if kind == "result":  # a call has one
            tool = ""
    return found


def words_of(text: Iterable[Message]) -> list[int]:
    return [word for message in text for word in message.words]


def cut_oldest(text: list[Message], budget: int) -> list[Message]:
    """Drop the oldest messages that are no system prompt until the rest fits."""
    prompt = [message for message in text if message.kind == "system"]
    if len(words_of(prompt)) >= budget:
        prompt = []
    room = budget - len(words_of(prompt))
    rest = [message for message in text if message not in prompt]
    while len(words_of(rest)) > room:
        if len(rest) == 1:
            rest[0].words = rest[0].words[-room:]
        else:
            del rest[0]
    return sorted([*prompt, *rest], key=lambda message: message.key)


def cut_exchanges(text: list[Message], budget: int) -> list[Message]:
    """Drop the oldest exchanges, from a user's message to the next, until the rest fits."""
    prompt = [message for message in text if message.kind == "system"]
    if len(words_of(prompt)) >= budget:
        prompt = []
    room = budget - len(words_of(prompt))
    exchanges: list[list[Message]] = [[]]
    for message in text:
        if message in prompt:
            continue
        after_prompt = any(earlier.kind == "system" for earlier in exchanges[-1])
        if message.words and (message.kind in ("user", "system") or after_prompt):
            exchanges.append([])
        exchanges[-1].append(message)
    exchanges = [exchange for exchange in exchanges if words_of(exchange)]
    while len(words_of([*chain(*exchanges)])) > room:
        if len(exchanges) > 1:
            del exchanges[0]
            continue
        gone = len(words_of(exchanges[0])) - room
        for message in exchanges[0]:
            count = min(gone, len(message.words))
            message.words, gone = message.words[count:], gone - count
    return sorted([*prompt, *chain(*exchanges)], key=lambda message: message.key)


def clear(text: list[Message], budget: int, asked: dict[str, Any]) -> list[Message]:
    """Clear old results as the published description says, then drop the oldest messages."""
    most = min(asked.get("trigger", 0) or budget, budget)
    if len(words_of(text)) > most:
        results = [message for message in text if message.kind == "result"]
        old = results[: max(len(results) - asked.get("keep", 3), 0)]
        goes = [message for message in old if message.tool not in asked.get("exclude_tools", ())]
        if asked.get("clear_tool_inputs") == "yes":
            for number, message in enumerate(text):
                if message.kind != "call" or message.tool in asked.get("exclude_tools", ()):
                    continue
                after = []
                for later in text[number + 1 :]:
                    if later.kind == "call":
                        break
                    after += [later] if later.kind == "result" else []
                if after and all(later in goes for later in after):
                    goes.append(message)
        if len(words_of(goes)) >= asked.get("clear_at_least", 0):
            text = [message for message in text if message not in goes]
    return cut_oldest(text, budget)


def kept_by(policy: Policy, recording: Recording, budget: int) -> list[list[int]]:
    trace = simulate(policy, recording.dialogs, budget, entries=False)
    return [sorted(row[row >= 0].tolist()) for row in trace.kept_tokens[0]]


def by_hand(recording: Recording, budget: int, cut: Any) -> list[list[int]]:
    text: list[Message] = []
    kept = []
    for message in messages_of(recording):
        if message.words:
            text = cut([*text, message], budget)
        kept.append(words_of(text))
    return kept


KIND = st.sampled_from(["user", "assistant", "result", "result", "call find", "call book"])
CONVERSATION = st.builds(
    lambda first, rest: [*first, *rest],
    st.sampled_from([[], [("system", 3)], [("system", 9)]]),
    st.lists(st.tuples(KIND, st.integers(0, 9)), min_size=1, max_size=14),
)


@given(CONVERSATION, st.integers(1, 40))
@example([("system", 3), ("user", 9)], 8)
@example([("system", 9), ("user", 2), ("assistant", 9)], 9)
def test_the_oldest_messages_are_dropped_until_the_rest_fits(
    kinds: list[tuple[str, int]], budget: int
) -> None:
    recording = recorded(kinds)

    kept = kept_by(read_policy("messages(fifo)"), recording, budget)

    assert kept == by_hand(recording, budget, cut_oldest)
    exchanges = kept_by(read_policy("messages(fifo, begins=user)"), recording, budget)
    assert exchanges == by_hand(recording, budget, cut_exchanges)


def recorded(kinds: list[tuple[str, int]]) -> Recording:
    return lexical_recording(conversation([*kinds, ("user", 1)]))


@given(CONVERSATION, st.integers(1, 60), st.data())
def test_results_are_cleared_as_published(
    kinds: list[tuple[str, int]], budget: int, data: st.DataObject
) -> None:
    recording = recorded(kinds)
    asked: dict[str, Any] = {
        "keep": data.draw(st.integers(0, 3)),
        "trigger": data.draw(st.integers(0, 40)),
        "clear_at_least": data.draw(st.integers(0, 12)),
        "exclude_tools": data.draw(st.sampled_from(["", "find", "book", "find+book"])),
        "clear_tool_inputs": data.draw(st.sampled_from(["no", "yes"])),
    }
    policy = policy_named("clear-results", **asked)
    asked["exclude_tools"] = asked["exclude_tools"].split("+")

    kept = kept_by(policy, recording, budget)

    assert kept == by_hand(recording, budget, lambda text, size: clear(text, size, asked))


def test_clearing_worked_by_hand() -> None:
    """Five uses of two tools; the text has 40 words when the last result comes."""
    uses = [kind for tool in ["find", "book", "find", "find", "book"] for kind in
            ((f"call {tool}", 0), ("result", 4))]  # fmt: skip
    recording = lexical_recording(conversation([("system", 2), ("user", 3), *uses]))
    sizes = [end - start for start, end in
             zip(recording.starts, recording.starts[1:], strict=False)]  # fmt: skip
    all_words, starts = sum(sizes), recording.starts

    def cleared_by(name: str, budget: int) -> list[int]:
        """Return the turns of which nothing is held at the end."""
        last = kept_by(read_policy(name), recording, budget)[-1]
        return [
            turn for turn in range(12) if not {*range(starts[turn], starts[turn + 1])} & {*last}
        ]

    first, second, third, fourth = 3, 5, 7, 9  # turns with results
    assert cleared_by("clear-results", all_words) == []
    assert cleared_by("clear-results", all_words - 1) == [first, second]
    assert cleared_by("clear-results keep=1", all_words - 1) == [first, second, third, fourth]
    assert cleared_by("clear-results exclude_tools=find", all_words - 1) == [second]
    assert cleared_by("clear-results clear_at_least=8", all_words - 1) == [first, second]
    # Nine tokens cannot be cleared, so the oldest message goes instead.
    assert cleared_by("clear-results clear_at_least=9", all_words - 1) == [1]
    inputs = "clear-results clear_tool_inputs=yes"
    assert cleared_by(inputs, all_words - 1) == [2, first, 4, second]
    # A trigger below the budget clears earlier, what the budget would have had room for.
    assert cleared_by(f"clear-results trigger={all_words - 1}", 10 * all_words) == [first, second]
    assert cleared_by(f"clear-results trigger={all_words}", 10 * all_words) == []


def held_turns(name: str, turns: Sequence[Turn], budget: int, calls: Sequence[Call]) -> set[int]:
    """Return the turns of which something is held at the end."""
    text = Transcript("by hand", tuple(turns), calls=tuple(calls), calls_in_text=True)
    recording = lexical_recording(text)
    last = kept_by(read_policy(name), recording, budget)[-1]
    return {*np.searchsorted(recording.starts, last, "right").tolist()}


def test_a_call_goes_only_with_all_of_its_results() -> None:
    called = '{"name": "find", "arguments": {}}'
    words = "one two three four five six"
    turns = [
        Turn("user", "find it"),
        Turn("assistant", called, call_characters=len(called)),
        Turn("tool", words, kind="result"),
        Turn("tool", words, kind="result", tool="book"),
        Turn("user", "and then"),
    ]
    find = [Call(1, "find", ())]
    yes = "clear-results clear_tool_inputs=yes"
    # A turn's number here is its place from 1. The second result is kept, so its call is.
    assert held_turns(f"{yes} keep=1", turns, 28, find) == {1, 2, 4, 5}
    assert held_turns(f"{yes} keep=0", turns, 28, find) == {1, 5}
    # The result of another tool is cleared, but not the call of the excluded one.
    of_other = [*turns[:2], turns[3], turns[4]]
    assert held_turns(f"{yes} keep=0", of_other, 24, find) == {1, 4}
    assert held_turns(f"{yes} keep=0 exclude_tools=find", of_other, 24, find) == {1, 2, 4}


def test_a_newest_result_that_is_cleared_is_not_kept_for_its_end() -> None:
    turns = [Turn("user", "find it now"), Turn("tool", "a b c d e f g h i j k", kind="result")]
    assert held_turns("clear-results keep=0", turns, 8, ()) == {1}


def test_words_of_an_unknown_kind_decay_as_the_users() -> None:
    recording = recorded([("system", 3), ("user", 3), ("assistant", 3)])
    unknown = dataclasses.replace(recording.dialogs, kinds=None)
    policy = policy_named("regions", user_half_life=3.0, assistant_half_life=1000.0)
    trace = simulate(policy, unknown, 4)
    assert explain(trace, unknown, 0, 3, token=6).score == pytest.approx(-1)


def test_regions_worked_by_hand() -> None:
    """Worth is the priority, halved every so many tokens."""
    kinds = [("system", 2), ("user", 3), ("assistant", 4), ("result", 3), ("user", 2)]
    recording = lexical_recording(conversation(kinds))
    policy = policy_named("regions", user=2.0, assistant_half_life=3.0)
    half_lives = dict(policy_named("regions").settings.items())
    worth, kinds_of = {}, recording.dialogs.kinds
    assert kinds_of is not None
    for token, number in enumerate(kinds_of[0].tolist()):
        kind = KINDS[number]
        half = 3.0 if kind == "assistant" else float(half_lives[f"{kind}_half_life"].default)
        worth[token] = (2.0 if kind == "user" else 1.0) * 0.5 ** ((13 - token) / half)

    *_, kept = kept_by(policy, recording, 13)

    best = sorted(worth, key=lambda token: worth[token], reverse=True)[:13]
    assert kept == sorted(best)
    trace = simulate(policy, recording.dialogs, 8)
    why = explain(trace, recording.dialogs, 0, 4, token=best[0])
    assert why.score == pytest.approx(math.log2(worth[best[0]]), abs=1e-6)


@pytest.mark.parametrize("half_life", [1e-40, 5e-324])
def test_a_half_life_of_nearly_nothing_leaves_scores_finite(half_life: float) -> None:
    recording = recorded([("user", 3), ("assistant", 3)])
    policy = policy_named("regions", user_half_life=half_life, assistant_half_life=half_life)

    assert kept_by(policy, recording, 2)[-1] == [0, 6]  # of equals, the older


@given(CONVERSATION, st.integers(1, 40))
def test_regions_with_one_half_life_are_fifo(kinds: list[tuple[str, int]], budget: int) -> None:
    recording = recorded(kinds)
    equal = {name: 20.0 for name in policy_named("regions").settings if "half" in name}

    kept = kept_by(policy_named("regions", **equal), recording, budget)

    assert kept == kept_by(policy_named("fifo"), recording, budget)


@given(CONVERSATION, st.integers(1, 50), st.sampled_from(["fifo", "messages(fifo)", "sink"]))
def test_what_follows_the_first_change_is_counted(
    kinds: list[tuple[str, int]], budget: int, name: str
) -> None:
    recording = recorded(kinds)

    counted = reread_tokens(f"reread({name})", recording, budget)

    expected, before = 0, list[int]()
    for start, (end, kept) in zip(
        recording.starts,
        zip(recording.starts[1:], kept_by(read_policy(name), recording, budget), strict=True),
        strict=False,
    ):
        text = [*before, *range(start, end)]
        gone = [word for word in text if word not in kept]
        expected += sum(word > gone[0] for word in kept) if gone else 0
        before = kept
    assert counted == expected
    assert reread_tokens(name, recording, budget) == 0


def reread_tokens(name: str, recording: Recording, budget: int) -> float:
    trace = simulate(read_policy(name), recording.dialogs, budget, entries=False)
    return Evidence(trace, recording).tokens_reread()


def test_placeholders_are_read_again_worked_by_hand() -> None:
    kinds = [
        ("system", 2),
        ("user", 3),
        ("result", 5),
        ("assistant", 2),
        ("result", 5),
        ("user", 4),
    ]
    recording = lexical_recording(conversation(kinds))

    # At 18, the last turn clears the first result: 11 words follow, and "[", "cleared" and "]".
    name = "clear-results keep=1"
    assert reread_tokens(f"reread({name}, placeholder=gone)", recording, 18) == 1 + 11
    assert reread_tokens(f"reread({name})", recording, 18) == 3 + 11
    # At 14, the turn before does, and the last drops the question, and the placeholder with it.
    assert reread_tokens(f"reread({name}, placeholder=gone)", recording, 14) == 1 + 7 + 11
    assert reread_tokens(f"reread({name}, placeholder=)", recording, 14) == 7 + 11
    table = replay(Replay((read_policy(f"reread({name})"),), (18,)), [recording])
    assert table[table.metric == "tokens_reread"].value.tolist() == [14.0]


def test_a_placeholder_before_the_first_change_is_not_read_again() -> None:
    kinds = [("user", 3), ("result", 5), ("assistant", 2), ("result", 5), ("assistant", 2)]
    recording = lexical_recording(conversation([*kinds, ("result", 5)]))

    texts, placeholders = (
        reread_tokens(f"reread(clear-results keep=1, placeholder={words})", recording, 16)
        for words in ("", "gone")
    )

    assert placeholders - texts == 2, "one at each change, not the first at both"


@pytest.mark.parametrize(
    ("name", "budget", "refused"),
    [
        ("messages(fifo)", 100, 0),
        ("messages(fifo)", 24, 2),  # no user's message, then the result without its call
        ("messages(fifo, begins=user)", 24, 1),  # the end of what is too large
        ("messages(fifo, begins=user)", 27, 0),
        ("clear-results keep=0", 22, 0),
    ],
)
def test_what_services_refuse_is_counted(name: str, budget: int, refused: int) -> None:
    kinds = [("user", 3), ("call find", 0), ("result", 5), ("assistant", 3)]
    recording = lexical_recording(conversation([*kinds, ("user", 3)]))
    sizes = np.diff(recording.starts).tolist()
    assert sizes == [3, 16, 5, 3, 3]
    for reread, turns in ((f"reread({name})", refused), (name, 0)):
        trace = simulate(read_policy(reread), recording.dialogs, budget, entries=False)
        assert Evidence(trace, recording).turns_refused() == turns / 5


def test_reading_again_decides_as_before() -> None:
    recording = recorded([("system", 3), ("user", 9), ("result", 9), ("assistant", 9)] * 3)
    for name in ("fifo", "messages(fifo)", "clear-results keep=1", "regions", "learned"):
        inner, outer = read_policy(name), read_policy(f"reread({name})")
        assert kept_by(inner, recording, 20) == kept_by(outer, recording, 20)
        assert outer.reads_again
        assert not inner.reads_again


def test_names_of_users_and_of_earlier_versions() -> None:
    titles = {
        "messages(fifo)": "Drop oldest messages, keys kept",
        "clear-results": "Clear tool results (keep 3), keys kept",
        "clear-results keep=1 trigger=9": "Clear tool results (keep 1, trigger=9), keys kept",
        "reread(messages(fifo))": "Drop oldest messages",
        "shift": "Context shift",
        "regions": "By region",
        "messages(h2o)": "Whole messages (H2O)",
    }
    assert {name: read_policy(name).title for name in titles} == titles
    spaced = read_policy("reread(clear-results, placeholder=[old result])")
    assert read_policy(spaced.name) == spaced


def test_what_is_unknown_is_said() -> None:
    policies = [read_policy(name) for name in ("messages(fifo)", "clear-results", "regions")]
    for policy in policies:
        assert len(policy.without_effect(Available())) == 1
        assert policy.without_effect(Available(("user", "system", "prompt"), kinds=KINDS)) == ()
    some = Available(("user", "system", "prompt"), kinds=("system", "user", "assistant"))
    assert len(policy_named("clear-results").without_effect(some)) == 1
    assert len(policy_named("regions").without_effect(some)) == 1
    unused = read_policy("reread(fifo, placeholder=x)").without_effect(Available())
    assert unused == ("fifo clears no results, so no placeholder is written.",)


def test_a_stream_is_told_of_kinds_and_tools() -> None:
    recording = recorded([("system", 3), ("call find", 0), ("result", 6), ("user", 5)] * 3)
    dialogs = recording.dialogs
    policy = read_policy("clear-results keep=1 exclude_tools=book")
    cache, kept = OnlineCache(policy, 30), []
    for start, end in zip(recording.starts, recording.starts[1:], strict=False):
        columns = {"kinds": dialogs.kinds, "tools": dialogs.tools, "speakers": dialogs.speakers}
        of_turn = {name: column[0, start:end] for name, column in columns.items()}  # type: ignore[index]
        vectors = dict.fromkeys(
            ("queries", "keys", "values", "embeddings"), np.zeros((end - start, 2))
        )
        kept.append(cache.feed(**vectors, **of_turn).kept_tokens.tolist())

    assert kept == kept_by(policy, recording, 30)


def test_why_a_result_left_is_told_by_its_terms() -> None:
    kinds = [("user", 3), ("result", 5), ("assistant", 2), ("result", 5), ("user", 4)]
    recording = lexical_recording(conversation(kinds))
    trace = simulate(read_policy("clear-results keep=1"), recording.dialogs, 16)

    why = explain(trace, recording.dialogs, 0, 4, token=5)

    assert why.terms["cleared"] < 0 == why.marginal_terms["cleared"]
    assert "was evicted in turn 4" in sentences(why)[0]


@pytest.mark.long
def test_the_work_of_a_long_conversation_grows_with_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each turn costs what is held and what is new, however many turns came before."""
    from fdkvc.core import cache as cores

    counted: list[int] = []
    plain = cores.Pages.sum

    def sum_of(self: Any, cache: Any, column: Any) -> Any:
        counted.append(column.size)
        return plain(self, cache, column)

    monkeypatch.setattr(cores.Pages, "sum", sum_of)
    work = {}
    for turns in (30, 120):
        recording = recorded([("call find", 0), ("result", 6), ("user", 5)] * (turns // 3))
        for name in ("messages(fifo)", "clear-results", "reread(clear-results)"):
            counted.clear()
            kept_by(read_policy(name), recording, 64)
            work[name, turns] = sum(counted)
    for name in ("messages(fifo)", "clear-results", "reread(clear-results)"):
        assert 0 < work[name, 120] < 5 * work[name, 30]
