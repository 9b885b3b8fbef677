"""What policies hold of agent conversations: the shipped table, and the page that shows it."""

from __future__ import annotations

from html import unescape

import numpy as np
import pandas as pd

from benchmarks.research import agents
from fdkvc.experiments.shipped_tables import AGENTS, agents_table
from fdkvc.report.shipped_agents import agents_report
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.words import BEST
from tests.app_pages import open_page


def test_agent_results_are_whole_and_no_policy_is_above_the_best() -> None:
    table = pd.read_csv(AGENTS)

    assert list(table.columns) == list(agents.COLUMNS)
    assert not table.duplicated(["variant", "policy", "budget", "metric"]).any()
    as_read = table[table.variant == agents.AS_READ]
    assert set(as_read.policy) == {*agents.POLICIES, BEST}
    assert len(as_read) == (len(agents.POLICIES) + 1) * len(agents.BUDGETS) * len(agents.METRICS)
    case = ["budget", "metric"]
    best = as_read[as_read.policy == BEST].set_index(case)["mean"]
    highest = best.loc[pd.MultiIndex.from_frame(as_read[case])].to_numpy()
    assert (as_read["mean"] <= highest).all()
    pinned = table[table.variant == agents.PINNED]
    assert set(pinned.policy) == set(agents.POLICIES)
    means = as_read.set_index(["policy", *case])["mean"]
    changed = table[table.variant.isin([agents.PINNED, agents.GENERAL])]
    before = means.loc[pd.MultiIndex.from_frame(changed[["policy", *case]])].to_numpy()
    np.testing.assert_allclose(changed["mean"] - before, changed.mean_diff, atol=3e-6)
    assert (table.ci_low <= table["mean"]).all()
    assert (table["mean"] <= table.ci_high).all()


def test_the_page_shows_agent_results() -> None:
    app = open_page("policies")
    assert f"{RECALL_ONLY} {PROTECT}" in [caption.value for caption in app.caption]
    assert f"{RECALL_ONLY} {PROTECT}" in unescape(agents_report())
    (shown,) = (
        html.proto.body for html in app.get("html") if "agent conversations" in html.proto.body
    )
    for mean in 100 * agents_table()["mean"]:
        assert f"<td>{mean:.1f} (" in shown
