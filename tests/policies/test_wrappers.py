"""Policies around policies: written in a line, and told like any other."""

import dataclasses
import json
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.arrays import one_dialog
from fdkvc.core.attention import SPEAKERS, Bools, Floats, Observation, word_id
from fdkvc.core.cache import Cache
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import Field, share
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule
from fdkvc.explain.counterfactual import counterfactual
from fdkvc.explain.decisions import explain, turn_view
from fdkvc.explain.narrate import narrate
from fdkvc.explain.notes import setting_changes
from fdkvc.policies import Policy, as_record, policy_named, read_policy, recorded_policy, wrapped
from fdkvc.policies.base import Available, Score, Update
from fdkvc.policies.blocks import Blocks
from fdkvc.policies.fifo import Fifo
from fdkvc.policies.together import Together
from fdkvc.policies.wrapper import Wrapper
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.examples import dialogs_of
from tests.refusals import refused
from tests.worlds import all_entries, kept_tokens, plain_dialog


def test_what_adds_nothing_leaves_the_policy_inside() -> None:
    dialogs = generate(SCENARIOS["return"], dialogs=2, seed=3)
    for names in (("window(h2o, share=0.75)", "h2o window=0.75"), ("sinks(h2o, n=0)", "h2o")):
        one, other = (simulate(read_policy(name), dialogs, 56, entries=False) for name in names)
        np.testing.assert_array_equal(one.kept_tokens, other.kept_tokens)
        np.testing.assert_array_equal(one.output, other.output)


def test_a_counterfactual_speaks_of_both() -> None:
    dialogs = generate(SCENARIOS["return"], seed=7)
    trace = simulate(read_policy("window(sink, share=0.5)"), dialogs, 56)
    token = 40

    changes = {change.name: change for change in counterfactual(trace, dialogs, 0, 2, token)}

    assert list(changes) == ["sinks", "share", "budget"]
    sinks = changes["sinks"].reversing_value
    assert sinks is not None
    again = simulate(trace.policy.variant(sinks=sinks), dialogs, 56)
    assert (token in again.kept_tokens[0, 2]) != (token in trace.kept_tokens[0, 2])


def test_what_is_around_a_policy_is_asked_what_entries_are_worth() -> None:
    """FD-KVC's ownership loss is of the scores that evict, so the heads together have one."""
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    trace = simulate(Together(policy_named("fd-kvc"), 2), dialogs, 56, entries=False)

    loss = trace.state["ownership_loss"]
    np.testing.assert_array_equal(loss[0], loss[1])
    alone = simulate(policy_named("fd-kvc"), dialogs, 56, entries=False)
    assert (alone.state["ownership_loss"][0] != alone.state["ownership_loss"][1]).any()


@pytest.mark.parametrize(
    ("written", "name", "title"),
    [
        ("blocks(h2o)", "blocks(h2o)", "Blocks (H2O)"),
        (
            "blocks( h2o:window=0.25 , size=8,score=mean)",
            "blocks(h2o window=0.25, size=8)",
            "Blocks (H2O window=0.25, size=8)",
        ),
        (
            "window(fd-kvc gamma=0.8, share=0.25)",
            "window(fd-kvc gamma=0.8, share=0.25)",
            "Window (FD-KVC γ=0.8, share=0.25)",
        ),
    ],
)
def test_it_is_read_and_written_in_a_line(written: str, name: str, title: str) -> None:
    policy = read_policy(written)

    assert (policy.name, policy.title) == (name, title)
    assert read_policy(policy.name) == policy
    assert recorded_policy(**json.loads(json.dumps(as_record(policy)))) == policy


def test_a_link_has_it_among_others() -> None:
    def name_of(text: str) -> str:
        return read_policy(text).name

    chosen = Field("Policies", "", name="policies", default=("fifo",), read=name_of)
    names = ["fifo", "blocks(h2o window=0.25, size=8)", "fd-kvc gamma=0.8"]

    link = chosen.written(names)

    assert link == "fifo,blocks(h2o:window=0.25,size=8),fd-kvc:gamma=0.8"
    assert chosen.parse(link) == names


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sinks(h2o", "'sinks(h2o' needs a closing parenthesis at"),
        ("sink5(h2o)", "'sink5' is not a wrapper: choose from sinks, "),
        ("blocks", "blocks is a wrapper: write blocks(POLICY)"),
        ("sinks(nothing)", "policy 'nothing' is unknown"),
        ("sinks()", "policy '' is unknown"),
        ("sinks(h2o, n)", "'n' in 'sinks(h2o, n)' is not a"),
        ("sinks(h2o, n=99)", "n is 99, but must be a whole number from 0 to 64"),
        ("sinks(h2o, places=9)", "'places' is not a hyperparameter of sinks"),
        ("fifo x=1", "'x' is not a hyperparameter of fifo (it has: none)"),
        ("window(window(h2o))", "window occurs more than once"),
        ("sinks(full)", "full stores everything, so sinks changes"),
        ("turns(blocks(turns(fifo)))", "turns occurs more than once"),
        ("blocks(ada-heads(h2o))", "ada-heads(h2o) allocates single places"),
        ("ada-heads(blocks(h2o))", "blocks(h2o) allocates whole pages"),
        ("reread(h2o)", "h2o looks at attention, but reread"),
        ("reread(random)", "random looks at chance, but reread"),
        ("reread(pyramid(fifo))", "pyramid(fifo) does not decide for the whole model"),
        ("sinks(reread(fifo))", "reread must be the outermost wrapper"),
        ("blocks(messages(fifo))", "messages(fifo) evicts whole pages already"),
        ("ada-heads(messages(h2o))", "messages(h2o) allocates whole pages"),
        ("whitelist(h2o, words=at:six)", "words is 'at six', but must be"),
        (
            "whitelist(h2o, words=" + 301 * "a" + ")",
            f"words is '{301 * 'a'}', but must be words of",
        ),
        ("whitelist(h2o, words=six+)", "words is 'six+', but must be"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(written: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        read_policy(written)


@pytest.mark.parametrize(
    "written",
    [
        "window(" * 1_100 + "h2o" + ")" * 1_100,
        "sinks(h2o" + ",n=1" * 4_000 + ")",
        "(" * 27_000,
        "f,(" * 9_000,
    ],
)
def test_a_long_name_is_refused_by_its_length(written: str) -> None:
    with refused("characters, but at most 1,000 are allowed"):
        read_policy(written)


def test_a_record_whose_inner_policy_is_none_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"the policy in sinks is \[1\], but must be an object"):
        recorded_policy("sinks", policy=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [2, 100, 300])
def test_a_wrapper_within_itself_is_refused_in_a_record(levels: int) -> None:
    record = as_record(policy_named("h2o"))
    for _ in range(levels):
        record = {"key": "window", "policy": record}

    with pytest.raises(ValueError, match=r"^window occurs more than once"):
        recorded_policy(**record)


@pytest.mark.parametrize("inside", ["(" * 90 + ")" * 90, "x(" * 90 + "h2o" + ")" * 90, "(,)" * 99])
def test_any_parentheses_are_refused_in_a_sentence(inside: str) -> None:
    with refused(r"unknown|is not a wrapper|parenthesis|NAME=VALUE"):
        read_policy(f"sinks({inside})")


def kept_by(name: str, dialog: DialogBatch, budget: int) -> list[list[int]]:
    trace = simulate(read_policy(name), dialog, budget)
    return [kept_tokens(trace, 0, turn) for turn in range(trace.turns)]


def test_a_window_around_a_policy_worked_by_hand() -> None:
    dialog = plain_dialog([[3, 1], [2, 9], [8, 7]])

    # The shortest keys stay; half of the budget, and its newest two tokens, whatever their keys.
    assert kept_by("knorm", dialog, 4) == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 5]]
    assert kept_by("window(knorm)", dialog, 4) == [[0, 1], [0, 1, 2, 3], [1, 2, 4, 5]]
    # By score the older of equals would stay: with w_c = 1 all are worth the same.
    alike = plain_dialog([[1] * 5])
    assert kept_by("window(fd-kvc w_c=1)", alike, 4) == [[0, 1, 3, 4]]
    assert kept_by("window(fd-kvc w_c=1)", alike, 3) == [[0, 1, 4]]  # half of three is one


def test_a_window_beside_sinks_gets_all_that_they_leave() -> None:
    keys = [9.0, 9, 1, 1, 1, 1, 8, 7]  # the shortest stay where nothing is protected
    dialog = plain_dialog([keys])
    assert kept_by("sinks(knorm, n=2)", dialog, 4) == [[0, 1, 2, 3]]
    assert kept_by("sinks(window(knorm, share=1), n=2)", dialog, 4) == [[0, 1, 6, 7]]


def test_a_whitelist_worked_by_hand() -> None:
    dialog = plain_dialog([[1, 1, 1], [1], [1, 1]])

    assert kept_by("whitelist(fifo)", dialog, 4)[2] == [0, 1, 4, 5]  # half of the budget
    assert kept_by("whitelist(fifo, most=1)", dialog, 4)[2] == [0, 1, 2, 5]
    assert kept_by("whitelist(fifo, first=0)", dialog, 4)[2] == [2, 3, 4, 5]
    assert kept_by("whitelist(fifo, first=0, at_turn=1)", dialog, 2)[2] == [3, 5]
    speakers = np.array([[1, 1, 1, 0, 1, 1]])
    said = dataclasses.replace(dialog, speakers=speakers)
    assert kept_by("whitelist(fifo, first=0, speaker=user)", said, 2)[2] == [3, 5]
    # Synthetic dialogs have no speakers.
    assert kept_by("whitelist(fifo, first=0, speaker=user)", dialog, 2)[2] == [4, 5]
    words = np.array([[word_id(word) for word in ("A", "in", "Rome", ",", "in", "rome")]])
    written = dataclasses.replace(dialog, words=words)
    assert kept_by("whitelist(fifo, first=0, words=ROME)", written, 2)[2] == [2, 5]
    assert kept_by("whitelist(fifo, first=0, words=a+rome)", written, 6)[1] == [0, 1, 2, 3]
    assert kept_by("whitelist(fifo, first=0, words=a+rome)", written, 4)[2] == [0, 2, 4, 5]
    # Without spaces, each character is a word.
    words = np.array([[word_id(word) for word in "去广州，一张"]])
    written = dataclasses.replace(dialog, words=words)
    assert kept_by("whitelist(fifo, first=0, words=广州)", written, 4)[2] == [1, 2, 4, 5]
    # No word is known of a drawn token.
    assert kept_by("whitelist(fifo, first=0, words=rome)", dialog, 2)[2] == [4, 5]
    # It leaves no place to the sinks.
    assert kept_by("whitelist(sink, first=2, most=1)", dialog, 3)[1] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "protected"),
    [("h2o window=0.7", 63), ("window(knorm, share=0.7)", 63), ("whitelist(knorm, most=0.7)", 63)],
)
def test_a_share_of_the_budget_is_that_of_its_decimal_number(name: str, protected: int) -> None:
    dialog = plain_dialog([[1] * 100])
    assert 90 * 0.7 < 63  # in floats
    trace = simulate(read_policy(name), dialog, 90)
    assert trace.result(0).protected.sum() == protected


def test_a_share_of_a_turn_is_that_of_its_decimal_number() -> None:
    dialog = plain_dialog([[1] * 100])
    assert 100 * 0.29 < 29 and 100 * 0.07 > 7  # noqa: PT018, both in floats
    assert simulate(read_policy("snapkv window=0.29"), dialog, 90).result(0).protected.sum() == 29
    picked = simulate(read_policy("turns(fifo, picks=0.07)"), dialog, 90).result(0)
    assert picked.entries["picked"].sum() == 7


def test_sinks_worked_by_hand() -> None:
    dialog = plain_dialog([[1, 1, 1], [1], [1, 1]])

    assert kept_by("sinks(fifo, n=1)", dialog, 3) == [[0, 1, 2], [0, 2, 3], [0, 4, 5]]
    assert kept_by("sinks(fifo)", dialog, 5)[2] == [0, 1, 2, 3, 5]
    assert kept_by("sinks(fifo)", dialog, 3)[2] == [0, 1, 2]  # the budget has no place for others
    assert kept_by("sinks(fifo, n=0)", dialog, 3) == kept_by("fifo", dialog, 3)
    assert kept_by("sinks(sink sinks=2, n=1)", dialog, 3)[2] == [0, 1, 5]
    # Of two pages of two entries, that of the first token stays.
    assert kept_by("blocks(sinks(fifo, n=1), size=2)", dialog, 4)[2] == [0, 1, 4, 5]


@pytest.mark.parametrize(
    "name", ["sinks({}, n=8)", "whitelist({}, first=1, most=1)", "sinks(blocks({}, size=5), n=8)"]
)
def test_no_threshold_evicts_what_is_protected(name: str) -> None:
    core = "fd-kvc tau=0.9"
    dialogs = generate(SCENARIOS["shift"], dialogs=2, seed=3)
    trace = simulate(read_policy(name.format(core)), dialogs, 56)
    first = range(8) if name.startswith("sinks") else range(dialogs.bounds[0, 1])

    alone = simulate(policy_named("fd-kvc", tau=0.9), dialogs, 56)
    assert not set(first) <= set(kept_tokens(alone, 0, 7)), "the threshold evicts some"
    for row, turn in np.ndindex(2, trace.turns):
        kept = set(kept_tokens(trace, row, turn))
        assert kept >= set(first)
        if "blocks" in name:  # and their pages stay whole
            assert kept >= {8, 9}
    assert (trace.evicted["threshold"] > 0).any()


def test_a_recording_knows_who_speaks() -> None:
    recording = lexical_recording(dialogs_of("dialogues")[0], 0)
    trace = simulate(
        read_policy("whitelist(fifo, first=0, speaker=system, most=1)"), recording.dialogs, 24
    )

    last = trace.kept_tokens[0, -1]
    said = recording.transcript.spoken_by
    assert {said[turn] for turn in recording.dialogs.born[0, last]} == {"system"}
    assert set(said) == {"user", "system"}


def test_a_piece_of_a_marked_word_is_of_that_word() -> None:
    said = Transcript("said", (Turn("User", "To San José, at 19:00."),))
    pieces = [("To", 0, 2), ("San", 3, 6), ("Jo", 7, 9), ("sé", 9, 11), (",", 11, 12)]
    pieces += [("at", 13, 15), ("19:", 16, 19), ("00", 19, 21), (".", 21, 22)]
    vectors = np.ones((1, len(pieces), 2), np.float32)
    tokens = (tuple(Token(*piece) for piece in pieces),)
    recording = Recording(said, tokens, vectors[0], vectors, vectors, vectors, (0,), "a test")

    name = "whitelist(fifo, first=0, words=josé+19, most=1)"
    trace = simulate(read_policy(name), recording.dialogs, 4)
    assert trace.kept_tokens[0, 0].tolist() == [2, 3, 6, 8]


@pytest.mark.parametrize(
    ("name", "available", "said"),
    [
        ("whitelist(fifo, speaker=user)", Available(), "No words of the user are marked here"),
        (
            "whitelist(fifo, speaker=prompt)",
            Available(SPEAKERS[:2]),
            "No words of the system prompt",
        ),
        (
            "blocks(whitelist(fifo, words=rome))",
            Available(speakers=SPEAKERS),
            "Words are unknown here",
        ),
        ("ada-heads(h2o)", Available(layers=2), "There is one head here"),
        ("pyramid(ada-heads(h2o))", Available(heads=2), "There is one layer here"),
    ],
)
def test_what_changes_nothing_somewhere_is_said(name: str, available: Available, said: str) -> None:
    policy = read_policy(name)

    (sentence,) = policy.without_effect(available)
    assert sentence.startswith(said)
    assert policy.without_effect(Available(speakers=SPEAKERS, words=True, heads=2, layers=2)) == ()


def test_turns_are_judged_once_worked_by_hand() -> None:
    dialog = plain_dialog([[3, 1, 2, 4], [8, 6], [9, 7]])

    # Half of each turn is picked, by the shortest keys: 1 and 2, then 5, then 7. What was not
    # picked leaves first, the oldest of it first; then what was picked longest ago.
    assert kept_by("turns(knorm, picks=0.5)", dialog, 3) == [[1, 2, 3], [1, 2, 5], [2, 5, 7]]
    trace = simulate(read_policy("turns(knorm, picks=0.5)"), dialog, 3)
    why = explain(trace, dialog, 0, 1, token=3)
    assert (why.score, why.cutoff, why.deciding_terms) == (-3, 1, ("passed over",))
    story = narrate(trace, dialog, 0, 1)[0]
    assert story.step.name == "Compression of the turn"
    assert story.sentence.endswith("; the deduction of 5 entries ranges from −6 to 0, mean −2.400.")


def test_turns_are_picked_with_the_ties_of_the_policy_inside() -> None:
    dialog = plain_dialog([[1 + 2**-23, 1]])  # by rounding alone the second is the shorter
    assert kept_by("knorm", dialog, 1) == [[0]]
    assert kept_by("turns(knorm, picks=0.5)", dialog, 1) == [[0]]


def test_turns_leave_eviction_to_the_budget() -> None:
    dialogs = generate(SCENARIOS["shift"], seed=3)
    thresholds = [
        simulate(read_policy(name), dialogs, 56).evicted["threshold"].sum()
        for name in ("fd-kvc tau=0.9", "turns(fd-kvc tau=0.9)")
    ]
    assert thresholds[0] > 0
    assert thresholds[1] == 0


def test_pages_leave_as_wholes_worked_by_hand() -> None:
    dialog = plain_dialog([[6, 1, 3], [3, 4], [2, 2]])

    # Pages of two: 6 1, 3 3, 4 2, 2. Six places are three pages, by the mean of their keys.
    assert kept_by("blocks(knorm, size=2)", dialog, 6)[1:] == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]]
    # By the largest score, which is the shortest key, the first page is the best.
    name = "blocks(knorm, size=2, score=largest)"
    assert kept_by(name, dialog, 6)[2] == [0, 1, 4, 5, 6]
    # A page that is not full takes all of its places, and five places are two pages.
    assert kept_by("blocks(knorm, size=2)", dialog, 5)[1:] == [[0, 1, 2, 3], [5, 6]]
    # A window protects whole pages, the newest; what has no room there is not protected.
    trace = simulate(read_policy("blocks(window(knorm, share=0.9), size=2)"), dialog, 5)
    protected = all_entries(trace)
    assert protected.token[0, 2][protected.protected[0, 2]].tolist() == [4, 5, 6]
    # Where the budget is less than a page, part of one stays.
    assert kept_by("blocks(fifo, size=16)", dialog, 4)[2] == [0, 1, 2, 3]
    page = plain_dialog([[1, 1]])
    part = explain(simulate(read_policy("blocks(fifo, size=2)"), page, 1), page, 0, 0, token=1)
    assert (part.margin, part.marginal) == (0, 0)
    why = explain(simulate(read_policy(name), dialog, 6), dialog, 0, 2, token=3)
    assert (why.score, why.cutoff, why.deciding_terms) == (-3, -2, ("negative key norm",))


def test_a_threshold_evicts_whole_pages_only() -> None:
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    trace = simulate(read_policy("blocks(fd-kvc tau=0.7, size=8)"), dialogs, 56)

    entries = all_entries(trace)
    evicted, page = entries.rule == Rule.threshold, entries.token // 8
    stayed = (entries.token >= 0) & ~evicted
    assert evicted.any()
    for row, turn in np.ndindex(evicted.shape[:2]):
        assert not {*page[row, turn, evicted[row, turn]]} & {*page[row, turn, stayed[row, turn]]}


def heads(*keys: list[float], lengths: list[int]) -> DialogBatch:
    rows = [
        one_dialog(
            embeddings=np.array(head_keys)[:, None],
            queries=np.ones((len(head_keys), 1)),
            keys=np.array(head_keys)[:, None],
            values=np.ones((len(head_keys), 1)),
            turn_lengths=lengths,
        )
        for head_keys in keys
    ]
    return dataclasses.replace(stack(rows), heads=len(keys))


def test_heads_share_their_budgets_worked_by_hand() -> None:
    # Two dialogs of two heads, whose shortest keys stay.
    dialog = heads([1, 2, 3, 4], [5, 6, 7, 0], lengths=[4])
    two = dataclasses.replace(stack([dialog, dialog]), heads=2)
    trace = simulate(read_policy("ada-heads(knorm, safe=0)"), two, 2)

    # The shortest four of both are 0 of the second head, and 1, 2 and 3 of the first.
    assert [kept_tokens(trace, row, 0) for row in range(4)] == 2 * [[0, 1, 2], [3]]
    assert [turn_view(trace, two, row, 0).places for row in (0, 1)] == [3, 1]
    safe = simulate(read_policy("ada-heads(knorm, safe=1)"), two, 2)
    assert [kept_tokens(safe, row, 0) for row in (0, 1)] == [[0, 1], [0, 3]]
    # What is protected stays in each head, and takes its places.
    window = simulate(read_policy("ada-heads(window(knorm), safe=0)"), two, 2)
    assert [kept_tokens(window, row, 0) for row in (0, 1)] == [[0, 1, 3], [3]]
    # One head has nothing to share.
    alone = simulate(read_policy("ada-heads(knorm)"), two.row(0), 2)
    assert kept_tokens(alone, 0, 0) == [0, 1]


def test_heads_that_share_keep_the_best_of_all() -> None:
    keys = np.random.default_rng(3).normal(size=(3, 40))
    lengths = [10, 5, 0, 20, 5]
    dialogs = heads(*keys.tolist(), lengths=lengths)
    trace = simulate(read_policy("ada-heads(knorm, safe=0.25)"), dialogs, 8)

    held: list[set[int]] = [set(), set(), set()]
    for turn, (end, length) in enumerate(zip(np.cumsum(lengths), lengths, strict=True)):
        held = [tokens | set(range(end - length, end)) for tokens in held]
        length_of = np.abs(keys)
        sure = [
            sorted(tokens, key=lambda token: length_of[row, token])[:2]
            for row, tokens in enumerate(held)
        ]
        rest = [
            (length_of[row, token], row, token)
            for row, tokens in enumerate(held)
            for token in tokens - set(sure[row])
        ]
        chosen = [set(tokens) for tokens in sure]
        for _, row, token in sorted(rest)[: 24 - 6]:
            chosen[row].add(token)
        held = chosen
        assert [set(kept_tokens(trace, row, turn)) for row in range(3)] == held


@dataclass(frozen=True)
class KeyedPolicy(Policy):
    """Keep the oldest, except for what the key of an entry says."""

    key = "keyed"
    label = "Keyed"
    KEPT, STALE = 1, 2

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        return Update(cache, stale=turn.keys(cache.token)[:, :, 0] == self.STALE)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return np.asarray(turn.keys(cache.token)[:, :, 0] == self.KEPT)

    def terms(self, cache: Cache, turn: Observation) -> dict[str, Floats]:
        return {"age": -turn.position(cache.token).astype(np.float32)}


@pytest.mark.parametrize(
    ("keys", "lengths", "kept"),
    [
        # A threshold evicts what it evicts in all heads: 1, not 0.
        (([2, 2, 0], [2, 2, 0], [0, 2, 0]), [2, 1], [0, 2]),
        # What all heads protect stays, though younger: 3, not 2.
        (([0, 0, 1, 1], [0, 0, 0, 1]), [4], [0, 3]),
    ],
)
def test_heads_together_do_what_all_of_them_do(
    keys: tuple[list[float], ...], lengths: list[int], kept: list[int]
) -> None:
    dialogs = heads(*keys, lengths=lengths)
    trace = simulate(Together(KeyedPolicy(), len(keys)), dialogs, 2)
    for row in range(len(keys)):
        assert kept_tokens(trace, row, len(lengths) - 1) == kept


def test_groups_of_heads_share_slots_as_so_many_heads() -> None:
    policy = read_policy("ada-heads(knorm)")
    four, two = (heads(*[[1.0, 2, 3]] * count, lengths=[3]) for count in (4, 2))
    groups = simulate(Together(policy, 2), four, 2).end_state.cache.token
    assert groups.shape[1] == simulate(policy, two, 2).end_state.cache.token.shape[1]


def test_layers_have_budgets_of_their_own_worked_by_hand() -> None:
    policy = read_policy("pyramid(fifo, last=0.5)")

    def budgets(rows: int, first_layer: int) -> list[int]:
        tokens: Any = SimpleNamespace(layers=4, first_layer=first_layer, heads=2)
        turn = Observation(0, np.zeros((rows, 1), np.intp), tokens)
        return [*map(int, np.ravel(policy.budgets(10, turn)))]

    # 1.5, 1.17, 0.83 and 0.5 times 10, rounded to 40 in all; both heads of a layer alike.
    assert budgets(8, first_layer=0) == [15, 15, 12, 12, 8, 8, 5, 5]
    assert budgets(2, first_layer=2) == [8, 8]
    assert policy.slots(10, 4, 2) >= 15
    assert policy.slots(10, 1, 2) == 10


def test_a_name_that_the_policy_inside_has_is_refused() -> None:
    @dataclass(frozen=True)
    class Again(Wrapper):
        key = "again"
        window: float = share(0.5, "Window", "As the policy inside has one.")

    assert Again(policy_named("fifo")).name == "again(fifo)"
    with pytest.raises(ValueError, match=r"^h2o has 'window' already"):
        Again(policy_named("h2o"))


def test_a_variant_changes_what_is_inside_too() -> None:
    policy: Policy = wrapped("blocks", policy_named("h2o"))
    changed = policy.variant(window=0.25, size=8)

    assert changed == Blocks(policy_named("h2o", window=0.25), size=8)
    assert setting_changes(policy, policy) == []
    assert setting_changes(changed, policy) == [
        "window (r) at 0.25 instead of 0.5",
        "page size (b) at 8 instead of 16",
    ]
    listed = read_policy("whitelist(fastgen recovery=0.5, words=rome)")
    assert setting_changes(listed, read_policy("whitelist(fastgen)")) == [
        "recovery (T) at 0.5 instead of 0.9",
        "marked words (M) at rome instead of none",
    ]
    other = policy_named("h2o", queries="each")
    assert setting_changes(other, policy) == ["H2O queries=each instead of Blocks (H2O)"]


def test_a_policy_that_names_no_steps_can_be_wrapped() -> None:
    class Unexplained(Fifo):
        steps = ()

    kinds = [step.kind for step in wrapped("sinks", Unexplained()).steps]
    assert kinds == ["protect"]
