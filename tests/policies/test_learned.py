"""Learned: worked by hand, and where its features come from."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.research.weights import fit, text_features
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.attention import TRAITS
from fdkvc.core.scripts import word_spans
from fdkvc.core.token_traits import token_traits
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.simulate import simulate
from fdkvc.explain.counterfactual import Change, counterfactual, nearest_first
from fdkvc.explain.notes import available_in, no_effect_notes
from fdkvc.models.page import choices as answers_page
from fdkvc.policies import learned, policy_named, synthetic_policies
from fdkvc.policies.learned import FEATURES, GROUPS, SHIPPED
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui.sidebar import POLICY
from fdkvc.ui.variants import CHOSEN
from fdkvc.verdict.page import choices as dialog_page
from tests.examples import dialogs_of
from tests.worlds import all_entries, by_token, kept_tokens

Weigh = Callable[..., None]


@pytest.fixture
def weigh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weigh:
    """Give features weights in their own units, the others 0."""

    def give(**weights: float) -> None:
        file = tmp_path / "weights.json"
        plain = {"mean": 0, "spread": 1}
        features = {name: plain | {"weight": weights.get(name, 0)} for name in FEATURES}
        file.write_text(json.dumps({"features": features}))
        monkeypatch.setattr(learned, "SHIPPED", file)

    return give


def test_what_scores_highest_stays_and_the_terms_say_why(weigh: Weigh) -> None:
    weigh(age=-1, repeated=-3, capital=2, digit=1, user=0.5)
    turns = (Turn("User", "to Rome at 5"), Turn("System", "Rome ?"), Turn("User", "yes"))
    dialogs = lexical_recording(Transcript("own", turns)).dialogs
    trace = simulate(policy_named("learned", window=0), dialogs, budget=4)
    entries = all_entries(trace)

    # to 0, Rome 1, at 2, 5 3 | Rome 4, ? 5 | yes 6. Rome begins the second turn, so it is not a
    # name there; the first one is repeated.
    log = np.log
    assert by_token(entries, entries.score, 0, 0) == pytest.approx({0: 0.5, 1: 2.5, 2: 0.5, 3: 1.5})
    assert by_token(entries, entries.score, 0, 1) == pytest.approx(
        {0: 0.5 - log(2), 1: -0.5 - log(2), 2: 0.5 - log(2), 3: 1.5 - log(2), 4: 0, 5: 0}, abs=1e-6
    )
    # Tokens 0 and 2 tie, and so the older stays.
    assert kept_tokens(trace, 0, 1) == [0, 3, 4, 5]
    terms = {term: by_token(entries, entries.terms[term], 0, 1)[1] for term in GROUPS}
    assert terms == pytest.approx(
        {"age": -log(2), "repeated": -3, "word": 2, "neighbours": 0, "position": 0, "speaker": 0.5}
    )
    # Token 0 has 0.5 − ln 3 = −0.60; tokens 4 and 5 have −ln 2 = −0.69, and 4 is the older.
    assert kept_tokens(trace, 0, 2) == [0, 3, 4, 6]


def test_a_repeated_word_stays_marked_once_the_newer_entry_is_evicted(weigh: Weigh) -> None:
    weigh(repeated=-1, capital=2)
    turns = (Turn("User", "to Rome now"), Turn("System", "rome"), Turn("User", "yes"))
    dialogs = lexical_recording(Transcript("own", turns)).dialogs
    trace = simulate(policy_named("learned", window=0), dialogs, budget=3)
    entries = all_entries(trace)

    # to 0, Rome 1, now 2 | rome 3, the newest of those that score 0 | yes 4.
    assert kept_tokens(trace, 0, 1) == [0, 1, 2]
    assert by_token(entries, entries.score, 0, 2) == {0: 0, 1: 1, 2: 0, 4: 0}


def test_what_went_because_its_word_came_again_would_have_stayed(weigh: Weigh) -> None:
    weigh(age=-1, repeated=-3, capital=2, digit=1)
    turns = (Turn("User", "to Rome at 5 to"), Turn("System", "Rome ?"), Turn("User", "to yes"))
    dialogs = lexical_recording(Transcript("own", turns)).dialogs
    trace = simulate(policy_named("learned", window=0), dialogs, budget=5)

    rome, *others = counterfactual(trace, dialogs, 0, turn=1, token=1)
    assert rome.words.endswith("it would have been kept.")
    assert nearest_first([*others, rome])[0] == rome
    assert "repeated" not in "".join(other.words for other in others)
    # The second "to" is as old as "at", and both are among the lowest two.
    to = counterfactual(trace, dialogs, 0, turn=2, token=4)
    assert to[0].words.endswith("it would still have been evicted.")
    assert nearest_first(to)[-1] == to[0]
    five = counterfactual(trace, dialogs, 0, turn=2, token=3)
    assert all(type(change) is Change for change in five)


def test_traits_are_those_of_the_words() -> None:
    text = "I fly on May 3rd."
    traits = token_traits(text, [*word_spans(text), (17, 17)], user=True)
    named = {name: traits[:, index].tolist() for index, name in enumerate(TRAITS)}

    assert named["user"] == [1] * 7
    assert named["mark"] == [0] * 6 + [1]
    assert named["capital"] == [0, 0, 0, 1, 0, 0, 0]  # the first word of a sentence says nothing
    assert named["digit"] == [0, 0, 0, 0, 1, 0, 0]
    assert named["punctuation"] == [0, 0, 0, 0, 0, 1, 0]
    assert named["near_digit"] == [0, 0, 0, 1, 0, 1, 0]
    assert named["near_capital"] == [0, 0, 1, 0, 1, 0, 0]
    assert named["position"] == pytest.approx([0, 1 / 11, 2 / 12, 3 / 13, 4 / 14, 5 / 15, 0])
    surprisal = named["surprisal"]
    assert surprisal[3] > surprisal[2] > 0
    assert named["near_surprisal"][2] == pytest.approx(
        (surprisal[0] + surprisal[1] + surprisal[3] + surprisal[4]) / 4
    )


def test_a_sentence_begins_after_its_end_and_not_after_a_colon() -> None:
    for mark, capital in ((".", 0), ("!", 0), ("?", 0), (":", 1), (",", 1)):
        text = f"so{mark} Rome"
        traits = token_traits(text, word_spans(text), user=True)
        assert traits[-1, TRAITS.index("capital")] == capital, mark


def test_equal_words_have_the_same_number_and_parts_of_a_word_different_ones() -> None:
    word = TRAITS.index("word")
    whole = token_traits("Rome, rome", [(0, 4), (4, 5), (6, 10)], user=True)[:, word]
    parts = token_traits("Rome Rome", [(0, 2), (2, 4), (5, 7), (7, 9)], user=False)[:, word]

    assert whole[0] == whole[2] != whole[1]
    assert parts[0] == parts[2] != parts[1] == parts[3]
    assert (np.concatenate([whole, parts]) > 0).all()


def test_it_says_where_words_are_missing_and_is_not_offered_there() -> None:
    policy = policy_named("learned")
    drawn = generate(SCENARIOS["mixed"], dialogs=1, seed=1)
    real = lexical_recording(dialogs_of("dialogues")[0]).dialogs

    assert no_effect_notes([policy], available_in(drawn)) == [
        "Learned: Words are unknown here, so it decides by age alone."
    ]
    assert no_effect_notes([policy], available_in(real)) == []
    assert "learned" not in synthetic_policies()


def test_the_weights_name_their_training() -> None:
    record = json.loads(SHIPPED.read_text())

    assert {"file", "dialogs", "clusters", "seed", "date"} <= set(record["training"])
    assert set(record["features"]) == set(FEATURES)


def test_a_stream_with_traits_decides_the_same() -> None:
    recording = lexical_recording(dialogs_of("dialogues")[0])
    dialogs, policy = recording.dialogs, policy_named("learned", window=0.25)
    assert dialogs.traits is not None
    assert dialogs.queries is not None
    trace, cache = simulate(policy, dialogs, 20), OnlineCache(policy, 20)

    for turn, (low, high) in enumerate(pairwise(recording.starts)):
        names = ("queries", "keys", "values", "embeddings", "traits")
        fed = cache.feed(**{name: getattr(dialogs, name)[0, low:high] for name in names})
        kept = trace.kept_tokens[0, turn]
        assert fed.kept_tokens.tolist() == kept[kept >= 0].tolist()
    vectors = {name: getattr(dialogs, name)[0, :1] for name in names[:-1]}
    with pytest.raises(ValueError, match="traits have 2 dimensions, but must have 11"):
        OnlineCache(policy, 20).feed(**vectors, traits=[[1, 2]])
    with pytest.raises(ValueError, match="traits must be given in every turn of a"):
        cache.feed(**vectors)


def test_a_word_is_repeated_however_long_the_stream_is(weigh: Weigh) -> None:
    weigh(repeated=-1)
    kept = []
    for far in (1, 2**20 - 1):
        cache = OnlineCache(policy_named("learned", window=0), budget=2)
        for position, word in ((0, 6), (far, 5), (far + 2, 5)):
            cache.fed = position
            traits = np.zeros((1, len(TRAITS)))
            traits[0, TRAITS.index("word")] = word
            vector = np.ones((1, 2))
            turn = cache.feed(
                queries=vector, keys=vector, values=vector, embeddings=vector, traits=traits
            )
        kept.append([*map([0, far, far + 2].index, turn.kept_tokens.tolist())])
    assert kept == [[0, 2], [0, 2]]


def test_a_stream_without_traits_decides_by_age_alone() -> None:
    kept = []
    for seed in range(2):
        random, cache = np.random.default_rng(seed), OnlineCache(policy_named("learned"), 8)
        for n in (6, 7, 5):
            drawn = random.normal(size=(4, n, 3))
            names = ("queries", "keys", "values", "embeddings")
            turn = cache.feed(**dict(zip(names, drawn, strict=True)))
        kept.append(turn.kept_tokens.tolist())
    assert kept[0] == kept[1]


def test_pages_of_real_dialogs_offer_it_and_those_of_synthetic_ones_do_not() -> None:
    assert "learned" in dialog_page.POLICIES.choices
    assert "learned" in answers_page.POLICIES.choices
    assert "learned" not in POLICY.choices
    assert "learned" not in CHOSEN.choices


def test_features_that_are_fitted_are_those_that_the_policy_scores() -> None:
    recording = lexical_recording(dialogs_of("dialogues")[0])
    dialogs, ends = recording.dialogs, np.array(recording.starts[1:])
    entries = all_entries(simulate(policy_named("learned", window=0), dialogs, int(ends[-1])))
    assert dialogs.traits is not None
    weights = json.loads(SHIPPED.read_text())["features"].values()
    mean, spread, weight = np.array([[*feature.values()] for feature in weights]).T

    traits = dialogs.traits[0].astype(float)
    for turn, end in enumerate(ends):
        token = np.arange(end)
        age = turn - dialogs.born[0, :end]
        scores = (text_features(traits, token, age, int(end)) - mean) / spread @ weight
        scored = by_token(entries, entries.score, 0, turn)
        assert scores == pytest.approx([scored[index] for index in token.tolist()], abs=1e-5)


def test_at_the_fit_the_gradient_of_the_likelihood_vanishes() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(2000, len(FEATURES)))
    labels = random.poisson(np.exp(1.5 * features[:, 0] - features[:, 1] - 2)).astype(float)
    fitted = fit(features, labels)
    x = (features - fitted.mean) / fitted.spread

    def loss(weight: np.ndarray, constant: float) -> float:
        score = x @ weight + constant
        return float((np.exp(score) - labels * score).sum() + weight @ weight / 2)

    constant = min(np.linspace(-3, 0, 3001), key=lambda candidate: loss(fitted.weight, candidate))
    least = loss(fitted.weight, constant)
    for index in range(len(FEATURES)):
        for step in (-0.02, 0.02):
            moved = fitted.weight + step * (np.arange(len(FEATURES)) == index)
            assert loss(moved, constant) > least
    assert fitted.weight[0] > 1.2
    assert fitted.weight[1] < -0.8
