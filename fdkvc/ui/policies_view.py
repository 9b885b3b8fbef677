"""The policies as the registry knows them: idea, equations, parameters, source, and their place."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from fdkvc.benchmark import COMPOSITE, Benchmark, Results, run_benchmark
from fdkvc.dialogs import BENCHMARK_SCENARIOS, SCENARIOS
from fdkvc.metrics import METRICS, metric_named
from fdkvc.parameters import defaults_of, parameters_of
from fdkvc.policies import POLICIES, Policy, policy_named
from fdkvc.statistics import summarize

DIALOGS = 50
"""Dialogs a scenario behind the overview: enough to tell the policies apart, soon done."""

SHOWN = (*METRICS, "attention_loss", "output_error")


@st.cache_data(show_spinner="Running every policy on a few dialogs …")
def _measured(dialogs: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return each policy's means over the five scenarios, by metric, and half their intervals."""
    results: Results = run_benchmark(
        Benchmark(
            scenarios=tuple(SCENARIOS[key] for key in BENCHMARK_SCENARIOS),
            policies=tuple(policy_named(key) for key in POLICIES),
            dialogs=dialogs,
            metrics=SHOWN,
        )
    )
    means: dict[str, dict[str, tuple[float, float]]] = {}
    for key in POLICIES:
        values = {metric: results.values(COMPOSITE, key, f"late_{metric}") for metric in SHOWN}
        summaries = {
            metric: summarize(value) for metric, value in values.items() if value is not None
        }
        means[key] = {
            metric: (summary.mean, (summary.high - summary.low) / 2)
            for metric, summary in summaries.items()
        }
    return means


def show_overview() -> None:
    """Show what each policy looks at, and its late metrics in the mean over five scenarios."""
    means = _measured(DIALOGS)
    st.dataframe(
        [
            {
                "Policy": policy.label,
                "Looks at": ", ".join(policy.looks_at),
                "Remembers": ", ".join(policy_named(key).quantity_name(c) for c in policy.channels),
                **_columns(means[key]),
            }
            for key, policy in POLICIES.items()
        ],
        column_config={
            name: st.column_config.NumberColumn(
                format="%.1f %%" if metric_named(metric).percent else "%.3f",
                help=said,
            )
            for metric in SHOWN
            for name, said in zip(
                _names(metric),
                (metric_named(metric).help, "Half of the 95 % interval of the mean."),
                strict=True,
            )
        },
        hide_index=True,
        width="stretch",
        height="content",
    )
    st.caption(
        f"Means over the five benchmark scenarios, {DIALOGS} dialogs each, seed 0, budget "
        f"{Benchmark.budget}, last turns; ± is half of the 95 % interval. The benchmark page "
        "runs any number of dialogs. The full cache alone has no budget; the oracle alone knows "
        "the future."
    )


def _names(metric: str) -> tuple[str, str]:
    label = metric_named(metric).label
    return label, f"± {label.lower()}"


def _columns(means: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return the columns of one policy's row: of each metric its mean and half its interval."""
    return {
        name: number * (100 if metric_named(metric).percent else 1)
        for metric, numbers in means.items()
        for name, number in zip(_names(metric), numbers, strict=True)
    }


def show_each() -> None:
    """Show every policy's idea, equations, parameters and source."""
    for key, policy in POLICIES.items():
        with st.expander(f"**{policy.label}** · {policy.idea}"):
            _show_policy(policy_named(key))


def _show_policy(policy: Policy) -> None:
    for step in policy.steps:
        st.markdown(f"**{step.name}** :gray[({step.source})]")
        st.latex(step.equation)
    known, defaults = parameters_of(policy), defaults_of(policy)
    if known:
        st.table(
            [
                {
                    "Parameter": each.label + (f" ${each.symbol}$" if each.symbol else ""),
                    "Default": f"{defaults[name]}",
                    "Allowed": each.allowed(type(defaults[name])),
                    "What it does": each.help,
                }
                for name, each in known.items()
            ]
        )
    looks = ", ".join(policy.looks_at)
    st.markdown(f"Looks at: {looks}. Key: `{policy.key}`.  \n:gray[Source: {policy.source}.]")
