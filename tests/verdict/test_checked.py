"""A verdict checked with a model: what is read, and what is said of it."""

from typing import Any

import pandas as pd
import pytest

from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.models.answers import MEASURED
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.head_recordings import count_tokens
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.policies import read_policy
from fdkvc.verdict import checked
from fdkvc.verdict.checked import KL, RIGHT, RIVAL, check_verdict, sample_of
from fdkvc.verdict.plan import Verdict

DIALOGS = read_file(EXAMPLES / "dialogues.json")
MODEL = shared_language_model(BUNDLED)
TOKENS = [count_tokens(MODEL, dialog) for dialog in DIALOGS]
WORDS = sum(DIALOGS[0].word_counts)
PINNED = f"whitelist({RIVAL}, first=0, speaker=prompt)"


def test_a_sample_has_dialogs_with_calls_of_different_clusters_first() -> None:
    one, other = DIALOGS
    again = one.with_name("again")
    silent = one.with_topics([None] * len(one.turns)).with_name("silent")
    object.__setattr__(silent, "demands", ())
    read = sample_of(MODEL, [silent, one, again, other], most=sum(TOKENS))
    assert [dialog.name for dialog in read] == [one.name, other.name]
    assert len(sample_of(MODEL, [one, again], most=2 * TOKENS[0])) == 2


def test_a_dialog_that_is_too_long_is_read_from_its_beginning() -> None:
    assert TOKENS[0] > 2 * WORDS - 2
    (begun,) = sample_of(MODEL, DIALOGS[:1], most=2 * WORDS - 2)
    assert begun.turns == DIALOGS[0].turns[:-1]
    assert {call.turn for call in begun.calls} < {*range(len(begun.turns))}
    assert begun.demands == tuple(
        demand for demand in DIALOGS[0].demands if demand.turn < len(begun.turns)
    )
    with pytest.raises(ValueError, match="no dialog is short enough"):
        sample_of(MODEL, DIALOGS, most=1)


def test_a_model_reads_at_the_same_share_of_the_text() -> None:
    check = check_verdict(Verdict("fifo", 52, ""), [260], MODEL, DIALOGS)
    assert "on 2 dialogs (1,319 tokens) with 132 entries" in check.sentence
    assert "20 % of the text as recommended" in check.sentence
    assert "under FIFO and 0." in check.sentence
    assert "under Sinks (H2O). Of" in check.sentence


def scores(clusters: int, **means: tuple[float, float]) -> pd.DataFrame:
    """Return KL and values right of each policy, of five dialogs that differ a little."""
    rows: list[tuple[Any, ...]] = []
    for name, (kl, right) in {"full": (0.0, 1.0), **means}.items():
        for at in range(5):
            case = f"d{at}", f"c{at % clusters}", name, 40
            rows += [(*case, KL, kl + 0.001 * at, 100), (*case, RIGHT, right, 4)]
    return pd.DataFrame(rows, columns=list(MEASURED))


@pytest.mark.parametrize(
    ("mine", "clusters", "told", "contradicts"),
    [
        ((0.21, 0.75), 5, "contradicts the recommendation: Sinks (H2O)", True),
        ((0.19, 1.0), 5, "This agrees with the recommendation.", False),
        ((0.19, 0.5), 5, "not distinguishable on this sample.", False),
        ((0.41, 0.5), 2, "Sinks (H2O) loses less, as far as so few", True),
        ((0.41, 1.0), 2, "not distinguishable on so few dialogs.", False),
        ((0.21, 0.5), 2, "not distinguishable on so few dialogs.", False),
    ],
)
def test_it_says_whether_the_model_bears_the_verdict_out(
    mine: tuple[float, float],
    clusters: int,
    told: str,
    contradicts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = scores(clusters, **{"fifo": mine, RIVAL: (0.2, 0.75)})
    monkeypatch.setattr(checked, "run_answers", lambda *_, **__: table)
    check = check_verdict(Verdict("fifo", 52, ""), [260], MODEL, DIALOGS)
    assert check.contradicts == contradicts
    assert told in check.sentence
    right = round(20 * mine[1])
    assert "Of 20 values that the full" in check.sentence
    assert f"{right} under FIFO and 15" in check.sentence


def test_the_rival_itself_is_compared_with_the_full_cache_alone() -> None:
    check = check_verdict(Verdict(PINNED, 52, ""), [260], MODEL, DIALOGS)
    assert check.sentence.count(" under ") == 2
    assert not check.contradicts
    alone = check_verdict(Verdict(RIVAL, 52, ""), [260], MODEL, DIALOGS)
    assert alone.sentence.count(f" under {read_policy(RIVAL).title}") == 2
    assert not alone.contradicts
    with pytest.raises(ValueError, match="nothing to check: There is no verdict"):
        check_verdict(Verdict("", 0, "There is no verdict"), [260], MODEL, DIALOGS)
