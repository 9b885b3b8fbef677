"""Tuning: hyperparameters searched on some drawn dialogs, and told on others.

The search is Optuna's (Akiba et al. 2019, *Optuna: A Next-generation Hyperparameter Optimization
Framework*; the package is optional), over any declared hyperparameter of a policy and of what is
around it, with several goals at once. What it finds was chosen because it did well on the dialogs
of the search, so it is measured again on fresh ones, beside the policy as it was.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.experiments.benchmark import Benchmark, Progress, run_benchmark
from fdkvc.experiments.statistics import paired, pareto_front, summarize
from fdkvc.limits import MAX_FRONT_SETTINGS
from fdkvc.parameters import SEED, Field, Parameter
from fdkvc.policies import Policy, read_policy
from fdkvc.run.metrics import metric_named
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS

TRIALS = Field(
    "Trials", "How many settings are tried.", name="trials", default=200, low=1, high=10_000
)
DIALOGS = Field(
    "Dialogs", "Of each scenario, in the search.", name="dialogs", default=20, low=1, high=1000
)
FRESH = Field(
    "Fresh dialogs", "Of each scenario, in the report.", name="fresh", default=200, low=2, high=5000
)
FRESH_SEED = 1_000_003
"""By so much the seed of the report is another than that of the search."""


Value = float | int | str

FRONT = ("setting", "goal", "searched", "n", "mean", "ci_low", "ci_high")
"""Columns of the report: each setting and goal, in the search and on fresh dialogs."""

GAINS = ("setting", "goal", "n", "mean_diff", "ci_low", "ci_high")
"""Columns of the paired differences from the policy as it was, on fresh dialogs."""


@dataclass(frozen=True)
class Tuning:
    """What to search.

    Attributes
    ----------
    policy : Policy
        What is tuned; what is not searched stays as it is here.
    names : tuple of str
        The hyperparameters to search; all by default.
    metrics : tuple of str
        One goal each; see `fdkvc.run.metrics.metric_named`.
    scenarios : tuple of str
    trials, dialogs, fresh, seed, budget : int

    Raises
    ------
    ValueError
        In one sentence, for anything that cannot be searched.
    """

    policy: Policy
    names: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("retention", "diversity")
    scenarios: tuple[str, ...] = BENCHMARK_SCENARIOS
    trials: int = TRIALS.default
    dialogs: int = DIALOGS.default
    fresh: int = FRESH.default
    seed: int = SEED.default
    budget: int = Benchmark.budget

    def __post_init__(self) -> None:
        for field in (TRIALS, DIALOGS, FRESH, SEED):
            field.check(getattr(self, field.name), field.name)
        known = searchable(self.policy)
        if not known:
            raise ValueError(f"{self.policy.name} has no hyperparameters to search")
        for name in self.names:
            if name not in known:
                raise ValueError(
                    f"{name!r} is not a hyperparameter of {self.policy.name} to search: choose "
                    f"from {', '.join(known)}"
                )
        if not self.metrics:
            raise ValueError("a search needs at least one goal, such as retention")
        _ = self.benchmark(self.dialogs, self.seed, [self.policy])  # it checks all the rest

    @property
    def searched(self) -> dict[str, Field]:
        """The hyperparameters that are searched, by name."""
        return {
            name: known
            for name, known in searchable(self.policy).items()
            if name in self.names or not self.names
        }

    def benchmark(self, dialogs: int, seed: int, policies: Sequence[Policy]) -> Benchmark:
        """Return what measures policies on the scenarios."""
        return Benchmark(
            scenarios=tuple(_scenario(key) for key in self.scenarios),
            policies=tuple(policies),
            dialogs=dialogs,
            seed=seed,
            budget=self.budget,
            metrics=self.metrics,
        )

    def measured(self, dialogs: int, seed: int, policies: Sequence[Policy]) -> dict[str, Any]:
        """Return each policy's numbers (goals, dialogs), in the mean over the scenarios."""
        unique = {policy.name: policy for policy in policies}
        results = run_benchmark(self.benchmark(dialogs, seed, list(unique.values())), workers=1)
        found = {}
        for name in unique:
            goals = []
            for metric in self.metrics:
                each = [
                    values
                    for key in self.scenarios
                    if (values := results.values(key, name, metric_named(metric).name)) is not None
                ]
                goals.append(np.mean(each, axis=0) if each else np.full(dialogs, np.nan))
            found[name] = np.array(goals)
        return found


def searchable(policy: Policy) -> dict[str, Field]:
    """Return the hyperparameters of a policy that can be searched, by name."""
    return {name: each for name, each in policy.settings.items() if not each.nominal}


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a search came to.

    Attributes
    ----------
    trials : DataFrame
        A row for each setting that was tried: its number and name, its goals in the search, and
        whether it is on the front there.
    front : DataFrame
        Columns `FRONT`: the policy as it was and settings of the front, on fresh dialogs.
    gains : DataFrame
        Columns `GAINS`.
    """

    trials: pd.DataFrame
    front: pd.DataFrame
    gains: pd.DataFrame


def tune(
    tuning: Tuning,
    storage: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> Tuned:
    """Search, and measure what was found on fresh dialogs.

    Parameters
    ----------
    storage : Path, optional
        A journal of all trials. Where there is one, of the same search, it goes on; in memory by
        default.
    on_progress : function, optional
        Called after each trial.
    cancelled : Event, optional
        Once set, no further trial begins, and what was found by then is measured.

    Raises
    ------
    ValueError
        If Optuna is not installed, or the journal is of another search.
    """
    study, began = _study(tuning, storage), perf_counter()
    done = len(study.get_trials(deepcopy=False, states=[_optuna().trial.TrialState.COMPLETE]))
    for at in range(done, tuning.trials):
        if cancelled is not None and cancelled.is_set():
            break
        # A sampler anew for each trial, so that a search that goes on asks the same.
        study.sampler = _optuna().samplers.TPESampler(seed=tuning.seed + at)
        trial = study.ask()
        policy = suggested(tuning, trial)
        values = tuning.measured(tuning.dialogs, tuning.seed, [policy])[policy.name].mean(axis=1)
        if np.isnan(values).any():
            raise ValueError(
                f"{', '.join(tuning.metrics)} say nothing of {', '.join(tuning.scenarios)}"
            )
        trial.set_user_attr("setting", policy.name)
        study.tell(trial, values.tolist())
        if on_progress is not None:
            title = f"{at + 1} of {tuning.trials} trials"
            on_progress(Progress(at + 1, tuning.trials, title, perf_counter() - began))
    complete = [trial for trial in study.get_trials(deepcopy=False) if trial.values]
    return remeasured_front(
        tuning, [(trial.user_attrs["setting"], trial.values) for trial in complete]
    )


def remeasured_front(tuning: Tuning, tried: Sequence[tuple[str, Sequence[float]]]) -> Tuned:
    """Return the settings that were tried, and on fresh dialogs the policy as it was and the best.

    Parameters
    ----------
    tried : sequence of (name, goals)
    """
    goals = np.array([values for _, values in tried], float).reshape(-1, len(tuning.metrics))
    signs = [-1 if metric_named(metric).lower_is_better else 1 for metric in tuning.metrics]
    on_front = pareto_front(goals * signs)
    trials = pd.DataFrame(goals, columns=list(tuning.metrics))
    trials.insert(0, "setting", [name for name, _ in tried])
    trials.insert(0, "trial", range(1, len(tried) + 1))
    trials["front"] = on_front

    best = trials[trials.front].drop_duplicates("setting").sort_values(list(tuning.metrics))
    places = np.unique(
        np.linspace(0, len(best) - 1, min(len(best), MAX_FRONT_SETTINGS)).round().astype(int)
    )
    chosen = [read_policy(name) for name in best.setting.iloc[places]]
    start = tuning.policy
    settings = {each.name: each for each in (start, *chosen)}
    numbers = tuning.measured(tuning.fresh, tuning.seed + FRESH_SEED, list(settings.values()))
    searched = trials.drop_duplicates("setting").set_index("setting")
    front, gains = [], []
    for name in settings:
        for at, metric in enumerate(tuning.metrics):
            found = summarize(numbers[name][at])
            before = float(searched[metric].get(name, math.nan))
            front.append((name, metric, before, found.n, found.mean, found.low, found.high))
            if name != start.name:
                gain = paired(numbers[name][at], numbers[start.name][at])
                gains.append((name, metric, gain.n, gain.mean, gain.low, gain.high))
    return Tuned(
        trials,
        pd.DataFrame(front, columns=list(FRONT)),
        pd.DataFrame(gains, columns=list(GAINS)),
    )


def suggested(tuning: Tuning, trial: Any) -> Policy:
    """Return the policy with what a trial suggests for each hyperparameter that is searched."""
    return tuning.policy.variant(
        **{name: _suggested(trial, name, known) for name, known in tuning.searched.items()}
    )


def _suggested(trial: Any, name: str, known: Field) -> Value:
    if known.choices:
        chosen: Value = trial.suggest_categorical(name, list(known.choices))
        return chosen
    low, high = limits(known, known.default)
    if known.kind is int:
        whole: Value = trial.suggest_int(name, int(low), int(high))
        return whole
    # Four digits are what a person would write, and what a name says in full.
    return round(float(trial.suggest_float(name, low, high)), 4)


def limits(known: Parameter, default: float) -> tuple[float, float]:
    """Return the range to search: all that is valid, but no further than ten times the value.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> settings = policy_named("fd-kvc").settings
    >>> limits(settings["gamma"], 0.88), limits(settings["mu"], 0.4)
    ((0.0001, 0.9999), (0, 4.0))
    """
    least = known.low + 1e-4 if known.open_low else known.low
    most = known.high - 1e-4 if known.open_high else known.high
    if known.high > 1:
        most = min(most, max(10 * abs(default), 1))
    return max(least, -10 * max(abs(default), 1)), most


def check_installed() -> None:
    """Raise a ValueError that says what to install where there is no Optuna."""
    _optuna()


def _scenario(key: str) -> Any:
    if key not in SCENARIOS or key not in BENCHMARK_SCENARIOS:
        raise ValueError(
            f"scenario {key!r} cannot be searched: choose from {', '.join(BENCHMARK_SCENARIOS)}"
        )
    return SCENARIOS[key]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "tuning needs Optuna: install it with pip install -r requirements-tune.txt"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(tuning: Tuning, storage: Path | None) -> Any:
    """Return the study in a journal, or a new one that begins with the policy as it is."""
    optuna = _optuna()
    kept = None
    if storage is not None:
        storage.parent.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal
        kept = optuna.storages.JournalStorage(journal.JournalFileBackend(str(storage)))
    directions = [
        "minimize" if metric_named(metric).lower_is_better else "maximize"
        for metric in tuning.metrics
    ]
    study = optuna.create_study(
        study_name="tuning",
        storage=kept,
        directions=directions,
        load_if_exists=True,
    )
    said = repr(replace(tuning, trials=1, fresh=2))
    if study.user_attrs.get("tuning", said) != said:
        raise ValueError(
            f"{storage} is the journal of another search: choose another folder, or the settings "
            "of that one"
        )
    study.set_user_attr("tuning", said)
    if not study.get_trials(deepcopy=False):
        start = {name: known.default for name, known in tuning.searched.items()}
        study.enqueue_trial(start)
    return study
