"""What a compaction forgot: as is written beside a session, and as any reader would count it.

After a change that is meant, write the texts again with
``python -m tests.conversations.test_forgot`` and read what changed.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from fdkvc import SCENARIOS, generate
from fdkvc.commands.main import main
from fdkvc.conversations import forgot as forgot_module
from fdkvc.conversations import forgot_history, rereading
from fdkvc.conversations.forgot import LISTED, WAYS, Forgot, forgot
from fdkvc.conversations.forgot_report import (
    heading,
    how_sure,
    instruction,
    losses_rows,
    none_sentence,
    notes_of,
    replay_sentence,
    rules_lines,
    sentence,
    ways_rows,
)
from fdkvc.conversations.formats import EXAMPLES, read_sessions
from fdkvc.conversations.formats.agents import BOOKKEEPING
from fdkvc.conversations.formats.chat import values_in
from fdkvc.conversations.mentions import WordingSearch
from fdkvc.conversations.session_text import ContextText
from fdkvc.conversations.sessions import Message, Session
from fdkvc.core.scripts import word_spans
from fdkvc.engine.fit import fit
from fdkvc.engine.simulate import simulate
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import policy_named, read_policy, synthetic_policies
from fdkvc.policies.ways import CLEARED, MESSAGES
from tests.session_lines import ClaudeCode, long_log

EXAMPLE = EXAMPLES / "agent.jsonl"
(SESSION,) = read_sessions(EXAMPLE.read_bytes(), EXAMPLE.name)


def session_of(log: ClaudeCode) -> Session:
    (session,) = log.read()
    return session


FORGOTTEN = Path(__file__).parent / "forgotten"
"""Sessions, a line of a log on each line, and beside each what it forgot."""

LIST_CASE = "a_list_has_the_rules_and_then_the_things_of_the_user_and_of_calls"

COMPARED = ("reread(messages(fifo))", "fifo", "reread(sink)", "shift")


def log_of(name: str) -> ClaudeCode:
    """Return a session of the folder."""
    log = ClaudeCode()
    for verb, *words in json.loads((FORGOTTEN / f"{name}.json").read_text("utf-8")):
        fields = words.pop() if words and isinstance(words[-1], dict) else {}
        getattr(log, verb)(*words, **fields)
    return log


def forgotten_lines(session: Session) -> Iterator[str]:
    """Yield what a session forgot at its compactions, and what other ways would have held."""
    yield from (f"note: {note}" for note in session.notes)
    results = [*forgot(session, [*map(read_policy, COMPARED)])]
    if not results:
        yield none_sentence(session)
    for result in results:
        yield f"{heading(result)}; size {result.size}, {result.calls_to_edit} calls to an edit"
        for need in result.needs:
            first = f"first by {need.method} {need.slot} in {need.message}, {need.age} later"
            source = f"from {need.source} {need.source_kind} {need.tool}".strip()
            back = f"given again in {need.giver}, stays {need.stays}"
            yield f"  {need.value!r}: {need.calls} calls, {first}; {source}; {back}"
        yield f"  lost: {', '.join(need.value for need in result.lost())}"
        for way in result.ways:
            held = [
                need.value for need, holds in zip(result.needs, way.holds, strict=True) if holds
            ]
            summary = way.rewrite.summary if way.rewrite else None
            numbers = f"{way.tokens} tokens, {way.read_again} read again, summary {summary}"
            yield f"  {way.label} [{way.policy}]: {numbers}, {way.redone}, holds {', '.join(held)}"
        yield from (f"  {failure}" for failure in result.failures)
        yield from (f"  {rule}" for rule in result.rules)
        yield from (f"  missing {line}" for line in rules_lines(result))
        results_words = (sentence(result), replay_sentence(result))
        sentences = (*results_words, result.compaction.note, *result.notes)
        yield from (f"  {words}" for words in sentences if words)


def written(name: str) -> str:
    return "\n".join(forgotten_lines(session_of(log_of(name)))) + "\n"


@pytest.mark.parametrize("name", [path.stem for path in sorted(FORGOTTEN.glob("*.json"))])
def test_a_session_forgot_what_is_written_beside_it(name: str) -> None:
    assert written(name) == (FORGOTTEN / f"{name}.expected").read_text("utf-8")
    session = session_of(log_of(name))
    for need in chain.from_iterable(result.needs for result in forgot(session, [])):
        calls = session.messages[need.message].calls
        arguments = [value for call in calls for _, value in values_in(call.arguments)]
        assert any(need.value in argument for argument in arguments), "word for word"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("calls_with_a_path_that_does_not_exist_are_said", "2 calls failed"),
        ("the_users_rules_stand_word_for_word_or_not", "of the user's 3 sentences with a"),
    ],
)
def test_a_note_says_what_was_forgotten(name: str, words: str) -> None:
    (result,) = forgot(session_of(log_of(name)), [read_policy("shift")])
    assert words in " ".join(notes_of(result))


def test_that_the_agent_failed_is_denied_only_where_a_value_did_not_come_back() -> None:
    (imagined,) = forgot(session_of(long_log()).imagined(2))
    (nothing_left,) = forgot(session_of(log_of("what_the_agent_put_back_was_not_lost")))
    (left,) = forgot(session_of(worked()))

    assert imagined.lost()
    assert "not what went wrong" in how_sure(left)
    for result in (imagined, nothing_left):
        assert how_sure(result).endswith("What came back in another form is not seen.")


def worked() -> ClaudeCode:
    """Return a session whose losses are plain: a code, a port, and a file that is read again."""
    return log_of("a_worked_compaction")


def by_hand(result: Forgot, keep: np.ndarray) -> list[bool]:
    """Return whether each needed value stands whole among the tokens that stay."""
    session, stands = result.session, []
    words = [
        (session.messages[index].turn.text, span)
        for index in result.compaction.context
        for span in word_spans(session.messages[index].turn.text)
    ]
    shown = "\0".join(
        text[start:end] if stays else "\1"
        for (text, (start, end)), stays in zip(words, keep, strict=True)
    )
    for need in result.needs:
        spelled = "\0".join(need.value[start:end] for start, end in word_spans(need.value))
        stands.append(bool(re.search(rf"(^|\0){re.escape(spelled)}(\0|$)", shown)))
    return stands


@pytest.mark.parametrize("name", [*WAYS, "fifo", "shift keep=8", "sinks(surprisal)"])
def test_what_a_way_holds_is_what_can_be_read_in_what_it_keeps(name: str) -> None:
    for result in forgot(SESSION, [read_policy(name)]):
        way = result.ways[1]
        text = ContextText.of([SESSION.messages[row] for row in result.compaction.context])
        keep = text.kept(read_policy(name), result.size)

        assert keep.sum() == way.tokens <= result.size == result.ways[0].tokens
        # A number within a time, such as 47 in 15:47, is no mention of it.
        plain = [not need.value.isdigit() for need in result.needs]
        assert sum(plain) >= 2
        assert (
            np.compress(plain, way.holds).tolist()
            == np.compress(plain, by_hand(result, keep)).tolist()
        )


@pytest.mark.long
def test_2_000_calls_alike_are_one_value_and_each_message_is_searched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ClaudeCode()
    log.user("The code is QX-771.")
    log.call("check", "c0", code="QX-771")
    for number in range(20):
        log.boundary()
        log.summary("Go on with QX-771.")
        for call in range(100):
            log.call("check", f"d{number}-{call}", code="QX-771")
    searched = Counter[str]()
    mentions = WordingSearch.mentions

    def counted(search: WordingSearch, text: str) -> Iterator[tuple[str, int, int]]:
        searched[text] += 1
        return mentions(search, text)

    read_lines = Counter[str]()
    lines_of = rereading._lines_of

    def counted_lines(message: Message) -> Iterator[tuple[int, int, int]]:
        read_lines[message.place] += 1
        return lines_of(message)

    monkeypatch.setattr(WordingSearch, "mentions", counted)
    monkeypatch.setattr(rereading, "_lines_of", counted_lines)
    session = session_of(log)
    results = [*forgot(session, ())]

    assert [[need.calls for need in result.needs] for result in results] == [[100]] * 20
    assert searched == Counter(message.turn.text for message in session.messages)
    assert max(read_lines.values()) <= 3


def test_values_beyond_the_limits_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgot_history, "MAX_SESSION_VALUES", 2)
    log = ClaudeCode()
    log.user("one two three")
    log.boundary()
    log.summary("Go on.")
    log.call("check", "c1", a="one", b="two", c="three")
    (result,) = forgot(session_of(log), ())

    assert [need.value for need in result.needs] == ["one", "two"]
    assert result.notes == ("Values after the first 2 are not looked for: 1.",)


def test_a_session_is_counted_in_the_tokens_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding = Encoding()
    words, session = session_of(worked()), session_of(worked()).in_tokens(encoding)
    assert session.unit == "tokens of SmolLM2"
    for message in session.messages:
        assert message.tokens == len(encoding.tokens.encode(message.turn.text)[0])
    (by_words,), (by_tokens,) = forgot(words), forgot(session)
    assert by_tokens.before > by_words.before
    assert [need.value for need in by_tokens.needs] == [need.value for need in by_words.needs]
    assert by_tokens.ways[0].holds == by_words.ways[0].holds, "the file says it, in any tokens"
    monkeypatch.setattr("fdkvc.conversations.sessions.MAX_SESSION_TOKENS", 20)
    with pytest.raises(ValueError, match=r"up to line 2, it has .* tokens, but at most 20"):
        session_of(worked()).in_tokens(encoding)
    with pytest.raises(ValueError, match="but at most 20"):
        [*forgot(words, ())]


def test_a_long_text_has_the_tokens_that_it_has_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The port of the replica is 8315, in Veldmar – 東京. " * 20
    whole = Encoding().spans(text)
    assert whole.tolist() == [*map(list, Encoding().tokens.encode(text)[1])]
    monkeypatch.setattr("fdkvc.models.numpy.encoding.PART", 90)
    assert np.array_equal(Encoding().spans(text), whole)
    assert Encoding().spans("x" * 500)[-1, 1] == 500
    assert Encoding().spans("").shape == (0, 2)


@pytest.mark.parametrize("names", [["full"], ["oracle"], ["fifo", "fifo"]])
def test_ways_that_cannot_be_compared_at_a_size_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"given twice|cannot be compared"):
        next(forgot(session_of(worked()), [*map(read_policy, names)]))


def test_a_way_that_keeps_more_than_the_size_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ContextText, "kept", lambda text, *_: np.ones(len(text), np.bool_))
    (result,) = forgot(session_of(worked()), [read_policy("fifo")])

    assert [way.label for way in result.ways[1:]] == [LISTED]
    assert "it keeps 51 of 21" in result.notes[-1]


def test_other_ways_are_compared_at_the_last_compactions_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgot_module, "MAX_COMPARED_COMPACTIONS", 2)
    log = ClaudeCode()
    log.user("The code is QX-771.")
    for number in range(3):
        log.call("check", f"c{number}", code="QX-771")
        log.boundary()
        log.summary("Go on with QX-771.")
    results = [*forgot(session_of(log), [read_policy("fifo")])]

    labels = [[way.label for way in result.ways[1:]] for result in results]
    assert labels == [[], ["FIFO", LISTED], ["FIFO", LISTED]]
    said = ["the last 2 compactions" in " ".join(result.notes) for result in results]
    assert said == [True, False, False]


def test_ways_that_need_vectors_keep_their_limit_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = [read_policy(name) for name in ("h2o", "weighted-recency", "shift")]
    (result,) = forgot(session_of(worked()), ways)
    assert [way.policy for way in result.ways[1:-1]] == ["h2o", "weighted-recency", "shift"]

    monkeypatch.setattr("fdkvc.conversations.session_text.MAX_SHOWN_TOKENS", 20)
    (result,) = forgot(session_of(worked()), ways)
    assert [way.policy for way in result.ways[1:-1]] == ["shift"]
    assert [" vectors" in note for note in result.notes] == [True, False]
    assert all("20" in note for note in result.notes)


@pytest.mark.parametrize("name", ["fifo", "h2o"])
def test_a_budget_beyond_the_text_keeps_all(name: str) -> None:
    dialogs = generate(SCENARIOS["shift"])

    assert fit(read_policy(name), dialogs, dialogs.keys.shape[1] + 7).all()


@pytest.mark.parametrize("key", synthetic_policies())
def test_a_decision_at_once_is_that_of_a_run_with_room_until_its_last_turn(key: str) -> None:
    policy, dialogs = policy_named(key), generate(SCENARIOS["mixed"])
    tokens, last = dialogs.keys.shape[1], dialogs.turns - 1
    room = simulate(policy, dialogs, tokens, stop=last, entries=False).end_state
    trace = simulate(policy, dialogs, 40, start=(last, room), entries=False)
    kept = trace.kept_tokens[0, 0]

    assert np.flatnonzero(fit(policy, dialogs, 40)).tolist() == sorted(kept[kept >= 0])


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["forgot", *arguments]) == 0
    return capsys.readouterr().out


def test_the_example_is_printed_in_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, str(EXAMPLE))

    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count("read again") == 2
    assert "tokens of SmolLM2" in shown
    assert "tide-07.example.net" in shown
    words = " ".join(shown.split())
    assert "this one log (2 compactions, 4 needed values at this one)" in words
    assert (
        "before use, 2 did not (for 1 of them, a path with the same file name was in context)"
        in words
    )
    assert "“Drop oldest messages” would have held 2, in 105 tokens." in words
    assert "(60 more tokens): with it, what stayed holds 2 of 4 values." in words
    assert words.count("what had left the context, not what went wrong.") == 2
    failed = "“keys/release-2026.key” (line 41); a path from before the compaction ends with"
    assert failed in words
    assert "The user's one sentence with a rule (never, must, …) does not stand word" in words
    assert words.count("(assumed model: Claude Opus 5, list prices") == 2


def test_json_has_the_same_and_all_losses(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(printed(capsys, str(EXAMPLE), "--json"))
    results = [*forgot(SESSION.in_tokens(Encoding()))]

    assert [row["ways"] for row in told["compactions"]] == [*map(ways_rows, results)]
    assert [row["losses"] for row in told["compactions"]] == [*map(losses_rows, results)]
    assert told["sessions"][0]["not_read"] == {BOOKKEEPING: 1}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_report_without_words_has_none_of_the_session(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    shown = printed(capsys, str(EXAMPLE), "--without-words", *more)
    needed = {need.value for result in forgot(SESSION) for need in result.needs}

    assert len(needed) > 8
    assert not [value for value in needed if value in shown and not value.isdigit()]
    assert "path of 27 characters" in shown


def test_a_session_without_compactions_offers_the_ways_at_a_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(long_log().content)

    assert "--at" in printed(capsys, str(path))
    shown = printed(capsys, str(path), "--at", "10")
    assert "Sink+Window" in shown
    assert "recorded" not in shown
    assert main(["forgot", str(path), "--at", "500"]) == 2
    assert "choose a smaller one" in capsys.readouterr().err


def test_the_other_ways_keep_as_much_as_one_asks(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(printed(capsys, str(EXAMPLE), "--at", "300", "--json"))
    for compaction in report["compactions"]:
        assert max(way["tokens"] for way in compaction["ways"][1:]) <= 300
    assert report["compactions"][0]["ways"][0]["tokens"] == 624


def test_no_setting_is_advised_as_a_replay_that_clears_results_may_drop_messages_too() -> None:
    *_, result = forgot(SESSION.in_tokens(Encoding()))
    ways = {way.policy: way for way in result.ways}
    assert sum(ways[CLEARED].holds) > sum(result.ways[0].holds)
    assert ways[CLEARED].holds == ways[MESSAGES].holds, "nothing is left to clear"

    assert "paste after /compact" in instruction(result)
    assert "This was not tried." in instruction(result)
    assert "Clearing" not in instruction(result)
    assert "API" not in instruction(result)


def test_what_to_paste_names_the_kinds_that_had_left() -> None:
    (result,) = forgot(session_of(log_of(LIST_CASE)), [read_policy("shift")])
    words = "full paths of the files in use, newest first; ids, keys, hashes, branches and names in"
    assert f"“List word for word: {words}" in instruction(result)
    assert "with it, what stayed holds 3 of 4 values." in instruction(result)


def test_what_a_list_would_have_held_is_said_only_if_it_holds_something() -> None:
    (result,) = forgot(session_of(worked()), [read_policy("fifo")])
    *others, listed = result.ways
    assert any(listed.holds)
    empty = replace(listed, holds=(False,) * len(listed.holds))

    assert "a list of what" in instruction(result)
    assert "a list of what" not in instruction(replace(result, ways=(*others, empty)))


@pytest.mark.long
def test_the_sessions_of_a_folder_are_summed_by_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, folder in enumerate(("/srv/boats", "/srv/boats", "/srv/tides")):
        log = worked()
        log.rows = [{**row, "cwd": folder} for row in log.rows if isinstance(row, dict)]
        (tmp_path / f"{number}.jsonl").write_bytes(log.content)
    (tmp_path / "chat.json").write_bytes((EXAMPLES / "chat.json").read_bytes())
    (tmp_path / "empty.json").write_text("")
    shown = printed(capsys, str(tmp_path))
    report = json.loads(printed(capsys, str(tmp_path), "--json"))

    assert "3 compactions in 3 sessions: 6 of 15 values" in shown
    assert "Most often: 3 ids (50 % of what had left)." in shown
    assert "compactions  had left  back" in shown
    assert "Not sessions of a coding agent: 1 file." in shown
    assert [row["project"] for row in report["projects"]] == ["/srv/boats", "/srv/tides"]
    assert [row["lost"] for row in report["projects"]] == [
        {"id": 2, "number": 2},
        {"id": 1, "number": 1},
    ]
    assert [row["came back"] for row in report["projects"]] == [2, 1]
    drawing = tmp_path / "losses.svg"
    printed(capsys, str(tmp_path), "--out", str(drawing))
    assert {"boats", "tides"} <= {*re.findall("boats|tides", drawing.read_text("utf-8"))}
    without_words = printed(capsys, str(tmp_path), "--without-words", "--out", str(drawing))
    assert "boats" not in without_words + drawing.read_text("utf-8")
    assert len(report["not read"]) == 1


def test_a_folder_without_compactions_or_sessions_and_a_file_that_is_none_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forgot", str(tmp_path)]) == 2
    assert "of no .jsonl or .json files" in capsys.readouterr().err
    (tmp_path / "chat.json").write_bytes((EXAMPLES / "chat.json").read_bytes())
    assert main(["forgot", str(tmp_path)]) == 2
    assert "of 1 .jsonl or .json file in" in capsys.readouterr().err
    assert main(["forgot", str(tmp_path / "chat.json")]) == 2
    assert "not a session of a supported" in capsys.readouterr().err
    (tmp_path / "log.jsonl").write_bytes(long_log().content)
    shown = printed(capsys, str(tmp_path))
    assert "No compaction after which it is known what the model had, in 1 session." in shown
    assert "Not sessions of a coding agent: 1 file." in shown


if __name__ == "__main__":
    for path in FORGOTTEN.glob("*.json"):
        path.with_suffix(".expected").write_text(written(path.stem), "utf-8")
