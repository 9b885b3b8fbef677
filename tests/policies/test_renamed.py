"""Old names of policies and hyperparameters: answered in a sentence, in a line and in a record."""

from typing import Any

import pytest

from fdkvc.policies import POLICIES, policy_named, read_policy, recorded_policy, renamed

OLD_FD_KVC: dict[str, Any] = {
    **{"gamma": 0.8, "alpha_0": 0.3, "mu": 0.4, "tau": 0.02, "beta": 0.25, "w_c": 0.45},
    **{"window": 0.0, "reinforcement": "added", "relevance": "similarity", "kappa": 0.0},
    **{"theta": 0.5, "salience": 0.0, "salience_decay": 0.88, "redundancy": 0.0},
    **{"recall": 0.0, "page_match": 0.7},
}
"""As older run.json files keep FD-KVC."""


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("fd-kvc-salience", "policy 'fd-kvc-salience' is now surprisal"),
        ("fd-kvc-window", "policy 'fd-kvc-window' is gone: h2o window=0.75 retains as much"),
        ("recall(h2o-decay forgetting=0.9)", "policy 'h2o-decay' is now a setting of h2o: write"),
        ("fd-kvc:window=0.5", "'window' is no longer a hyperparameter of fd-kvc: write window(fd-"),
        (
            "fd-kvc recall=1",
            "'recall' is no longer a hyperparameter of fd-kvc: write recall(fd-kvc",
        ),
        (
            "fd-kvc kappa=1",
            "'kappa' is no longer a hyperparameter of fd-kvc: write fd-kvc-adaptive",
        ),
        (
            "fd-kvc salience=1",
            "'salience' is no longer a hyperparameter of fd-kvc: write surprisal",
        ),
        (
            "fd-kvc relevance=attention",
            "'relevance' is no longer a hyperparameter of fd-kvc: it was removed",
        ),
    ],
)
def test_an_old_name_is_answered_with_the_new_spelling(written: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + sentence.replace("(", r"\(")):
        read_policy(written)


def test_what_is_named_instead_exists() -> None:
    for key in renamed.POLICIES:
        assert key not in POLICIES
    for (key, name), (_, instead) in renamed.SETTINGS.items():
        assert name not in policy_named(key).settings
        if instead.startswith("write "):
            assert read_policy(instead.removeprefix("write ")).name


def test_a_record_with_all_old_options_off_is_the_papers_policy() -> None:
    assert recorded_policy("fd-kvc", **OLD_FD_KVC) == policy_named("fd-kvc", gamma=0.8)
    with pytest.raises(ValueError, match=r"'window' is no longer .*: write window\(fd-kvc"):
        recorded_policy("fd-kvc", **{**OLD_FD_KVC, "window": 0.5})
    with pytest.raises(ValueError, match="is now surprisal"):
        recorded_policy("fd-kvc-salience", **OLD_FD_KVC)
