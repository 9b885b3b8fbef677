"""Learning: which tokens are needed, what is fitted, and what a file of weights does."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from fdkvc.commands.main import main
from fdkvc.corpora.formats import EXAMPLES, read_file
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.experiments.learning import draw_pairs, fit, split_by_cluster
from fdkvc.policies.learned import FEATURES, Learned
from fdkvc.run.simulate import simulate
from tests.worlds import all_entries

CITIES = ("Rome", "Oslo", "Bern", "Cork", "Lyon", "Graz", "Gent", "Bari", "Pisa", "York")


def chats(count: int) -> str:
    """Return chat messages in which a later call needs the city that the user named."""
    return json.dumps(
        [
            {
                "id": f"chat {number}",
                "messages": [
                    {"role": "user", "content": f"please find a room in {city} for me today"},
                    {"role": "assistant", "content": "what kind of room would you like to have ?"},
                    {"role": "user", "content": "a quiet one would be good , thank you very much"},
                    {
                        "role": "assistant",
                        "content": "I am looking for one",
                        "tool_calls": [
                            {"function": {"name": "find", "arguments": json.dumps({"city": city})}}
                        ],
                    },
                ],
            }
            for number, city in enumerate(CITIES[:count])
        ]
    )


def test_the_newest_mention_of_what_a_later_call_needs_is_needed() -> None:
    mentions = Mention(0, 3, 7), Mention(2, 0, 4)
    demand = Demand("call", 4, "Find", "city", "Rome", mentions)
    state = Demand("state", 4, "Find", "when", "now", (Mention(1, 0, 3),))
    texts = "to Rome", "now ?", "Rome now", "yes", "here"
    turns = tuple(Turn("User", text) for text in texts)
    recording = lexical_recording(Transcript("own", turns, (demand, state)))
    # to 0, Rome 1 | now 2, ? 3 | Rome 4, now 5 | yes 6 | here 7: 24 pairs of a turn and a token.
    features, labels = draw_pairs([recording], seed=0)
    at = {name: features[:, number] for number, name in enumerate(FEATURES)}

    assert len(labels) == 2 + 4 + 6 + 7 + 8
    assert labels.sum() == 4  # token 1 in turns 0 and 1, token 4 in turns 2 and 3
    assert sorted(np.expm1(at["age"][labels]).round().tolist()) == [0, 0, 1, 1]
    assert at["repeated"].sum() == 6  # tokens 1 and 2, in turns 2 to 4
    assert not at["repeated"][labels].any()


def test_features_are_those_that_the_policy_scores() -> None:
    recording = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0])
    policy = Learned(window=0)
    entries = all_entries(simulate(policy, recording.dialogs, recording.starts[-1]))
    features, _ = draw_pairs([recording], seed=0)

    scores = sum(
        weight * (features[:, at] - mean)
        for at, (mean, weight) in enumerate(policy.model[name] for name in FEATURES)
    )
    known = entries.score[entries.rank > 0]
    assert np.abs(known[:, None] - scores).min(axis=0).max() < 1e-5


@pytest.mark.parametrize("counts", [False, True])
def test_a_fit_is_where_the_gradient_of_the_likelihood_vanishes(counts: bool) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(2000, len(FEATURES)))
    score = 1.5 * features[:, 0] - features[:, 1] - 2
    expected = np.exp(score) if counts else 1 / (1 + np.exp(-score))
    labels = random.poisson(expected) if counts else random.random(2000) < expected
    fitted = fit(features, labels.astype(float), counts=counts)
    x = (features - fitted.mean) / fitted.spread

    def loss(weight: np.ndarray, constant: float) -> float:
        score = x @ weight + constant
        total = np.exp(score) if counts else np.logaddexp(0, score)
        return float((total - labels * score).sum() + weight @ weight / 2)

    constant = min(np.linspace(-3, 0, 3001), key=lambda each: loss(fitted.weight, each))
    least = loss(fitted.weight, constant)
    for at in range(len(FEATURES)):
        for step in (-0.02, 0.02):
            moved = fitted.weight + step * (np.arange(len(FEATURES)) == at)
            assert loss(moved, constant) > least
    assert fitted.weight[0] > 1.2
    assert fitted.weight[1] < -0.8


def ranking(scores: np.ndarray, needed: np.ndarray) -> float:
    """Return how probably a needed token scores above another, ties counting half."""
    wins = mannwhitneyu(scores[needed], scores[~needed]).statistic
    return float(wins / needed.sum() / (~needed).sum())


def test_shuffled_labels_give_chance() -> None:
    recordings = [lexical_recording(each) for each in read_file(EXAMPLES / "dialogues.json")]
    features, labels = draw_pairs(recordings, seed=0)
    random = np.random.default_rng(0)
    shuffled = [
        ranking(fit(features, random.permutation(labels)).scores(features), labels)
        for _ in range(40)
    ]

    assert ranking(fit(features, labels).scores(features), labels) > 0.85
    assert abs(np.mean(shuffled) - 0.5) < 0.06


def test_dialogs_are_split_by_whole_clusters() -> None:
    transcripts = [
        Transcript(f"dialog {number}", (Turn("User", "hello", f"service {number % 5}"),))
        for number in range(20)
    ]
    training, held_out = split_by_cluster(transcripts, seed=0)

    assert len(training) == 16
    assert {each.services for each in training} | {each.services for each in held_out} == {
        f"service {number}" for number in range(5)
    }
    assert not {each.services for each in training} & {each.services for each in held_out}
    with pytest.raises(ValueError, match="the dialogs have 1 clusters of services, but learning"):
        split_by_cluster(transcripts[:1], seed=0)


def test_learn_writes_weights_that_every_command_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chats.json").write_text(chats(10))

    learn = ["learn", "--dialogs", "chats.json", "--budgets", "12", "--out", "own.json"]
    assert main(learn) == 0
    said = capsys.readouterr().out
    assert "Trained on 7 dialogs" in said
    assert "compared on 3 of other services" in said
    written = Path("own.json").read_text()
    record = json.loads(written)
    assert record["training"]["dialogs"] == 7
    assert record["features"]["capital"]["weight"] > 0.1
    name = "learned weights=own.json"
    assert main(["dialogs", "--dialogs", "chats.json", "--policies", "fifo", name]) == 0
    assert name in capsys.readouterr().out
    assert main(learn) == 0
    assert Path("own.json").read_text() == written


def test_what_cannot_be_learnt_from_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.txt").write_text("User: hello\nSystem: hi there\n")
    Path("chats.json").write_text(chats(4).replace("tool_calls", "other"))

    for arguments, sentence in (
        (["--dialogs", "plain.txt"], "learning needs at least 3"),
        (["--dialogs", "chats.json"], "learning needs dialogs with calls"),
        (["--dialogs", "chats.json", "--out", "own.txt"], "--out must name a file"),
        (["--dialogs", "chats.json", "--out", "/own.json"], "--out is '/own.json', but must be"),
    ):
        assert main(["learn", "--out", "own.json", *arguments]) == 2
        found = capsys.readouterr().err
        assert sentence in found
        assert found.count("\n") == 1
    assert not Path("own.json").exists()
