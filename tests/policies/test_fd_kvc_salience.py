"""FD-KVC with salience: worked by hand, and FD-KVC with its options."""

import math

import numpy as np
import pytest

from fdkvc.corpora.formats import EXAMPLES, read_file
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.parameters import defaults_of, parameters_of
from fdkvc.policies import POLICIES, policy_named
from fdkvc.run.metrics import metric_named
from fdkvc.run.simulate import simulate
from fdkvc.synthetic.batch import one_dialog
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import by_token, kept_tokens


def test_the_newest_stay_and_of_the_rest_what_was_surprising_and_is_not_repeated() -> None:
    words = "abcadc"
    embeddings = np.eye(4)[["abcd".index(word) for word in words]]
    dialog = one_dialog(
        embeddings=embeddings,
        queries=embeddings,  # which nothing asks for
        keys=embeddings,
        values=embeddings,
        turn_lengths=[3, 1, 1, 1],
        surprisal=[9, 1, 4, 9, 2, 4],
    )
    trace = simulate(policy_named("fd-kvc-salience", salience_decay=0.5), dialog, budget=4)
    entries = trace.every_entry()

    # Of four places two are the window's. Token 3 repeats token 0; all four still fit in.
    assert kept_tokens(trace, 0, 1) == [0, 1, 2, 3]
    # Five words: 9/4, 1/4 and 4/4 of the old remain; the first is repeated, and goes all the same.
    salience = by_token(entries, entries.channels["salience"], 0, 2)
    assert salience == {0: 9 / 4, 1: 1 / 4, 2: 1, 3: 9 / 2, 4: 2}
    assert by_token(entries, entries.terms["redundancy"], 0, 2)[0] == pytest.approx(-1 - 1)
    assert kept_tokens(trace, 0, 2) == [1, 2, 3, 4]
    # Token 5 repeats token 2, so the least surprising one stays.
    assert kept_tokens(trace, 0, 3) == [1, 3, 4, 5]


def test_it_is_fd_kvc_with_its_options() -> None:
    own, paper = POLICIES["fd-kvc-salience"], POLICIES["fd-kvc"]
    changed = {
        name: value for name, value in defaults_of(own).items() if value != defaults_of(paper)[name]
    }
    dialogs = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0]).dialogs
    one, other = policy_named("fd-kvc-salience"), policy_named("fd-kvc", **changed)

    assert parameters_of(own) == parameters_of(paper)
    assert {"window", "salience", "redundancy"} <= set(changed)
    assert (one.steps, one.looks_at) == (other.steps, other.looks_at)
    traces = [simulate(policy, dialogs, 48) for policy in (one, other)]
    np.testing.assert_array_equal(traces[0].kept, traces[1].kept)


def test_neither_attention_nor_similarity_decides() -> None:
    recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0])
    other = lexical_recording(recording.transcript, seed=5)  # other vectors of the same words

    kept, others = [
        simulate(policy_named("fd-kvc-salience"), each.dialogs, 48).kept
        for each in (recording, other)
    ]
    np.testing.assert_array_equal(kept, others)


def test_after_a_shift_the_new_topic_has_nine_tenths_of_the_cache() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=20, seed=1)
    trace = simulate(policy_named("fd-kvc-salience"), dialogs, 56, entries=False)

    assert metric_named("retention").late(trace, dialogs).mean() > 0.9
    assert math.isclose(float(trace.last.cache["salience"].max()), 1)  # as all that are drawn
