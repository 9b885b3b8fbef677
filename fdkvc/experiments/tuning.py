"""Tuning: hyperparameters searched on some synthetic dialogs and reported on fresh ones.

The search is Optuna's (Akiba et al. 2019, *Optuna: A Next-generation Hyperparameter Optimization
Framework*; the package is optional), over the hyperparameters of a policy and its wrappers, with
one or more goals. The best settings are selected on the dialogs of the search, so they are measured
again on fresh ones, next to the original policy.
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

TRIALS = Field("Trials", "Settings to try.", name="trials", default=200, low=1, high=10_000)
DIALOGS = Field(
    "Dialogs", "Dialogs per scenario in the search.", name="dialogs", default=20, low=1, high=1000
)
FRESH = Field(
    "Fresh dialogs",
    "Dialogs per scenario in the report.",
    name="fresh",
    default=200,
    low=2,
    high=5000,
)
FRESH_SEED = 1_000_003
"""Added to the seed of the search for the fresh dialogs."""

FRONT = ("setting", "goal", "searched", "n", "mean", "ci_low", "ci_high")
"""Columns of the report: each setting and goal, in the search and on fresh dialogs."""

GAINS = ("setting", "goal", "n", "mean_diff", "ci_low", "ci_high")
"""Columns of the paired differences from the original policy, on fresh dialogs."""


@dataclass(frozen=True)
class Tuning:
    """What to search; refuses in one sentence what cannot be searched."""

    policy: Policy
    """The policy to tune; hyperparameters that are not searched keep its values."""
    names: tuple[str, ...] = ()
    """The hyperparameters to search; all by default."""
    metrics: tuple[str, ...] = ("retention", "diversity")
    """One goal each; see `fdkvc.run.metrics.metric_named`."""
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
                    f"{name!r} is not a searchable hyperparameter of {self.policy.name}: choose "
                    f"from {', '.join(known)}"
                )
        if not self.metrics:
            raise ValueError("a search needs at least one goal, such as retention")
        _ = self.benchmark(self.dialogs, self.seed, [self.policy])  # which checks the rest

    @property
    def searched(self) -> dict[str, Field]:
        """The hyperparameters that are searched, by name."""
        known = searchable(self.policy)
        return {name: known[name] for name in known if name in self.names or not self.names}

    def benchmark(self, dialogs: int, seed: int, policies: Sequence[Policy]) -> Benchmark:
        """Return the benchmark of policies on the scenarios."""
        for key in self.scenarios:
            if key not in BENCHMARK_SCENARIOS:
                raise ValueError(
                    f"scenario {key!r} cannot be searched: choose from "
                    f"{', '.join(BENCHMARK_SCENARIOS)}"
                )
        return Benchmark(
            scenarios=tuple(SCENARIOS[key] for key in self.scenarios),
            policies=tuple(policies),
            dialogs=dialogs,
            seed=seed,
            budget=self.budget,
            metrics=self.metrics,
        )

    def measured(self, dialogs: int, seed: int, policies: Sequence[Policy]) -> dict[str, Any]:
        """Return each policy's values (goals, dialogs), averaged over the scenarios."""
        unique = {policy.name: policy for policy in policies}
        results = run_benchmark(self.benchmark(dialogs, seed, list(unique.values())), workers=1)
        names = [metric_named(metric).name for metric in self.metrics]
        return {
            policy: np.array([results.mean(self.scenarios, policy, name) for name in names])
            for policy in unique
        }


def searchable(policy: Policy) -> dict[str, Field]:
    """Return the hyperparameters of a policy that can be searched, by name."""
    return {name: each for name, each in policy.settings.items() if not each.nominal}


@dataclass(frozen=True, eq=False)
class Tuned:
    """The results of a search."""

    trials: pd.DataFrame
    """A row per trial: its number, setting and goals, and whether it is on the Pareto front."""
    front: pd.DataFrame
    """Columns `FRONT`: the original policy and settings of the front, on fresh dialogs."""
    gains: pd.DataFrame
    """Columns `GAINS`."""


def tune(
    tuning: Tuning,
    storage: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> Tuned:
    """Search, and measure the best settings on fresh dialogs.

    `storage` is a journal of all trials, in memory by default; an existing one of the same search
    is continued. `on_progress` is called after each trial. Once `cancelled`, no further trial
    starts; the settings found so far are measured. Raises a ValueError if Optuna is not installed,
    or the journal belongs to another search.
    """
    study, began = _study(tuning, storage), perf_counter()
    optuna = optuna_package()
    done = len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))
    for at in range(done, tuning.trials):
        if cancelled is not None and cancelled.is_set():
            break
        # A new sampler per trial, so that a continued search suggests the same settings.
        study.sampler = optuna.samplers.TPESampler(seed=tuning.seed + at)
        trial = study.ask()
        policy = suggested(tuning, trial)
        values = tuning.measured(tuning.dialogs, tuning.seed, [policy])[policy.name].mean(axis=1)
        if np.isnan(values).any():
            raise ValueError(
                f"{', '.join(tuning.metrics)} are undefined in {', '.join(tuning.scenarios)}"
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
    """Return the trials, and the original policy and the best settings on fresh dialogs.

    `tried` has the name and the goals of each trial.
    """
    goals = np.array([values for _, values in tried], float).reshape(-1, len(tuning.metrics))
    signs = [-1 if metric_named(metric).lower_is_better else 1 for metric in tuning.metrics]
    on_front = pareto_front(goals * signs)
    trials = pd.DataFrame(
        {
            "trial": range(1, len(tried) + 1),
            "setting": [name for name, _ in tried],
            **dict(zip(tuning.metrics, goals.T, strict=True)),
            "front": on_front,
        }
    )

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
        trials, pd.DataFrame(front, columns=list(FRONT)), pd.DataFrame(gains, columns=list(GAINS))
    )


def suggested(tuning: Tuning, trial: Any) -> Policy:
    """Return the policy with a trial's suggestions for the searched hyperparameters."""
    return tuning.policy.variant(
        **{name: _suggested(trial, name, field) for name, field in tuning.searched.items()}
    )


def _suggested(trial: Any, name: str, field: Field) -> Any:
    if field.choices:
        return trial.suggest_categorical(name, list(field.choices))
    low, high = limits(field, field.default)
    if field.kind is int:
        return trial.suggest_int(name, int(low), int(high))
    # Four decimals, which a policy's name gives in full.
    return round(float(trial.suggest_float(name, low, high)), 4)


def limits(field: Parameter, default: float) -> tuple[float, float]:
    """Return the range to search: the valid one, up to ten times the default.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> settings = policy_named("fd-kvc").settings
    >>> limits(settings["gamma"], 0.88), limits(settings["mu"], 0.4)
    ((0.0001, 0.9999), (0, 4.0))
    """
    least = field.low + 1e-4 if field.open_low else field.low
    most = field.high - 1e-4 if field.open_high else field.high
    if field.high > 1:
        most = min(most, max(10 * abs(default), 1))
    return max(least, -10 * max(abs(default), 1)), most


def optuna_package() -> Any:
    """Return Optuna; a ValueError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise ValueError(
            "tuning needs Optuna: install requirements-tune.txt, or the extra tune"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(tuning: Tuning, storage: Path | None) -> Any:
    """Return the study in a journal, or a new one whose first trial is the original policy."""
    optuna = optuna_package()
    journal = None
    if storage is not None:
        storage.parent.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(storage))
        journal = optuna.storages.JournalStorage(backend)
    directions = [
        "minimize" if metric_named(metric).lower_is_better else "maximize"
        for metric in tuning.metrics
    ]
    study = optuna.create_study(
        study_name="tuning", storage=journal, directions=directions, load_if_exists=True
    )
    settings = repr(replace(tuning, trials=1, fresh=2))
    if study.user_attrs.get("tuning", settings) != settings:
        raise ValueError(
            f"{storage} is the journal of another search: choose another folder, or the settings "
            "of that one"
        )
    study.set_user_attr("tuning", settings)
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial({name: field.default for name, field in tuning.searched.items()})
    return study
