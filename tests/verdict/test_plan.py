"""Plans: which policy and how much cache, from tables made by hand."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import ARGUMENTS, REPLAYED, Replay
from fdkvc.core.statistics import FEW_CLUSTERS
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.engine.sinks import RECALL_ONLY
from fdkvc.policies import CANDIDATES, policy_named, read_policy
from fdkvc.verdict.model_shape import SHAPES, read_shape, shape_of
from fdkvc.verdict.plan import (
    Verdict,
    find_verdict,
    plan_table,
    replay_settings,
    smallest_budgets,
    unpinned_name,
)
from tests.refusals import assert_one_sentence

POLICIES = tuple(map(policy_named, ("fifo", "h2o", "surprisal", "full")))
SETTINGS = Replay(POLICIES, (100, 200, 400))
SHAPE = read_shape("4x2x64x16")
TOKENS = [800, 1200]
RECALL = {
    "fifo": (0.5, 0.92, 0.96),
    "h2o": (0.6, 0.955, 0.94),
    "surprisal": (0.8, 0.96, 0.995),
    "full": (1.0, 1.0, 1.0),
}


def replayed(clusters: int = 8, **more: tuple[float, ...]) -> pd.DataFrame:
    """Return recalls that differ a little between dialogs, in clusters of one."""
    generator = np.random.default_rng(0)
    rows: list[tuple[Any, ...]] = []
    for policy, means in {**RECALL, **more}.items():
        for budget, mean in zip(SETTINGS.budgets, means, strict=True):
            shifts = generator.uniform(-0.004, 0.004, clusters)
            rows += [
                (f"d{at}", f"c{at}", policy, "each", budget, "call_recall", mean + shift)
                for at, shift in enumerate(shifts - shifts.mean())
            ]
    return pd.DataFrame(rows, columns=list(REPLAYED))


def test_an_entry_takes_a_key_and_a_value_in_each_layer_and_head() -> None:
    assert SHAPE.entry_bytes == 4 * 2 * (64 + 64) * 2
    assert SHAPES["qwen2.5-7b"].entry_bytes == 28 * 4 * (128 + 128) * 2


def test_the_plan_has_bytes_of_the_stored_entries_and_what_they_save() -> None:
    plan = plan_table(SETTINGS, replayed(), TOKENS, SHAPE).set_index(["policy", "budget"])
    assert set(plan.index.get_level_values("policy")) == {"fifo", "h2o", "surprisal"}
    row: Any = plan.loc[("surprisal", 200)]
    assert (row.entries, row.bytes, row.saved) == (200, 200 * SHAPE.entry_bytes, 0.8)
    assert row.recall == pytest.approx(0.96)
    assert row.ci_low < 0.96 < row.ci_high
    short = plan_table(SETTINGS, replayed(), [150, 150], SHAPE)
    assert short.entries.max() == 150, "a cache holds no more than the dialog has"


def test_the_smallest_budget_holds_there_and_at_all_larger_ones() -> None:
    plan = plan_table(SETTINGS, replayed(), TOKENS, SHAPE)
    smallest = {target: smallest_budgets(plan, target) for target in (0.9, 0.95, 0.99)}
    assert smallest[0.9]["fifo"] == 200
    assert smallest[0.95]["fifo"] == 400
    assert np.isnan(smallest[0.99]["fifo"])
    assert smallest[0.9]["h2o"] == 200
    assert np.isnan(smallest[0.95]["h2o"]), "it falls below again at 400"
    assert [budgets["surprisal"] for budgets in smallest.values()] == [200, 200, 400]


def test_a_recall_that_is_the_target_but_for_rounding_reaches_it() -> None:
    plan = plan_table(SETTINGS, replayed(), TOKENS, SHAPE)
    plan = plan.assign(recall=float(np.float32(0.95)))
    assert plan.recall.max() < 0.95
    assert (smallest_budgets(plan, 0.95) == 100).all()


def arguments(**lost: int) -> pd.DataFrame:
    """Return 10 arguments of each policy at 200 entries, of which some are lost."""
    rows = [
        ("d0", "c0", policy, "each", 200, 9, "book", 0, "day", f"{at}", "result", 1, 8)
        + ((0.0, 3) if at < lost.get(policy, 0) else (1.0, -1))
        for policy in RECALL
        for at in range(10)
    ]
    return pd.DataFrame(rows, columns=list(ARGUMENTS))


def test_half_of_the_lost_values_are_not_most_of_them() -> None:
    table = arguments(surprisal=6)
    sources = ["user", "result"] * (len(table) // 2)
    advice = find_verdict(SETTINGS, replayed(), table.assign(source=sources), TOKENS, SHAPE)
    assert "6 of 10 values, most of them more than 6 turns" in advice.rest


def test_intervals_of_enough_clusters_are_not_too_narrow() -> None:
    for clusters, narrow in ((FEW_CLUSTERS - 1, True), (FEW_CLUSTERS, False)):
        caution = verdict_of(replayed(clusters)).caution
        assert f"in {clusters} clusters." in caution
        assert ("may make intervals too narrow" in caution) == narrow


def verdict_of(table: pd.DataFrame, target: float = 0.95, tokens: Any = TOKENS) -> Verdict:
    return find_verdict(SETTINGS, table, arguments(surprisal=6), tokens, SHAPE, target)


def test_the_verdict_names_policy_budget_saving_losses_and_rivals() -> None:
    advice = verdict_of(replayed())
    assert (advice.policy, advice.budget) == ("surprisal", 200)
    assert advice.sentence == (
        "Use Surprisal with 200 entries: 410 kB instead of 2.0 MB (80 % less) in 4x2x64x16, for a "
        "dialog of the mean length, 1,000 tokens. It holds 96.0 % (95.8 % to 96.2 %) of the values "
        "that a call needs, on average. Still forgotten: 6 of 10 values, most of them returned by "
        "a tool, more than 6 turns ago. At this budget all others hold less. FIFO needs 2 times "
        "the budget; H2O does not reach 95 % within 400 entries."
    )
    assert advice.caution == (
        "The verdict rests on 8 dialogs with calls, in 8 clusters. Fewer than 20 clusters may make "
        f"intervals too narrow. A replay runs no model. {RECALL_ONLY}"
    )
    assert verdict_of(replayed(), 0.9).budget == 200
    easier = verdict_of(replayed(), 0.99)
    assert (easier.policy, easier.budget) == ("surprisal", 400)
    assert "No other policy reaches 99 % within 400" in easier.rest


def test_the_verdict_is_hedged_where_intervals_overlap() -> None:
    tie = verdict_of(replayed(h2o=(0.6, 0.9599, 0.96)))
    assert "not distinguishable from H2O; the other holds" in tie.rest
    barely = verdict_of(replayed(surprisal=(0.8, 0.9501, 0.995)))
    assert re.search(r"95\.0 % \(94\.. % to 95\.. %\) .*, so 95 % is not certain\.", barely.rest)


def test_of_tied_policies_one_is_named_that_protects_the_first_tokens() -> None:
    settings = Replay(tuple(map(read_policy, ("fifo", "sink", "h2o"))), SETTINGS.budgets)
    for recall, named in ((0.9599, "sink"), (0.952, "fifo")):
        table = replayed(fifo=(0.5, 0.96, 0.97), sink=(0.5, recall, 0.97))
        table = table[table.policy.isin(["fifo", "sink", "h2o"])]
        advice = find_verdict(settings, table, arguments(), TOKENS, SHAPE)
        assert (advice.policy, advice.budget) == (named, 200)


def test_of_those_that_protect_the_first_tokens_the_best_is_named() -> None:
    names = ("fifo", "sinks(fifo)", "sink", "h2o")
    settings = Replay(tuple(map(read_policy, names)), SETTINGS.budgets)
    for means in ((0.9595, 0.9599), (0.9599, 0.9595)):
        recalls: Any = dict(zip(names[1:3], ((0.5, mean, 0.97) for mean in means), strict=True))
        table = replayed(fifo=(0.5, 0.96, 0.97), **recalls)
        advice = find_verdict(settings, table[table.policy.isin(names)], arguments(), TOKENS, SHAPE)
        assert advice.policy == names[1 + int(np.argmax(means))]


def test_one_cluster_has_neither_interval_nor_comparison() -> None:
    one = verdict_of(replayed(1))
    assert one.lead.startswith("Use Surprisal with 200 entries: 410 kB")
    assert "It holds 96.0 % of the values" in one.rest
    assert "At this budget" not in one.rest
    assert "in 1 cluster. An interval needs 4 clusters" in one.caution


def test_where_no_budget_is_enough_the_verdict_says_what_holds_most() -> None:
    low: Any = dict.fromkeys(("fifo", "h2o", "surprisal"), (0.1, 0.2, 0.3))
    none = verdict_of(replayed(**low))
    assert none.budget == 400
    assert none.lead.startswith("No policy tried holds 95 %")
    assert "holds most, 30.0 %" in none.lead
    empty = verdict_of(replayed().iloc[:0])
    assert empty.sentence.startswith("There is no verdict: no call")
    assert not empty.policy


def test_a_dialog_that_fits_saves_nothing() -> None:
    high = replayed().query("policy == 'surprisal'")
    fits = verdict_of(high, tokens=[100])
    assert "a dialog of the mean length, 100 tokens, fits" in fits.lead


def test_a_pinned_prompt_is_compared_with_its_twin() -> None:
    names = ("sinks(learned)", "whitelist(sinks(learned), first=0, speaker=prompt)", "fifo")
    settings = Replay(tuple(map(read_policy, names)), SETTINGS.budgets)
    means: Any = dict(
        zip(names, ((0.6, 0.7, 0.8), (0.7, 0.96, 0.98), (0.1, 0.2, 0.3)), strict=True)
    )
    table = replayed(**means)
    table = table[table.policy.isin(names)]
    advice = find_verdict(settings, table, arguments(), TOKENS, SHAPE)
    assert advice.lead.startswith("Use Sinks (Learned) (system prompt pinned) wi")
    assert "FIFO does not reach 95 % within 400 entries." in advice.rest
    assert re.search(r"changes recall by \+26\.0 \(", advice.rest)


def test_what_is_replayed_fits_the_dialogs() -> None:
    prompt = Turn("system", "Be kind", kind="system")
    talk = (prompt, *(Turn("user", "a table for two please " * 40) for _ in range(4)))
    settings = replay_settings(LexicalRecordings([Transcript("one", talk)]))
    names = [row.name for row in settings.policies]
    assert names[: len(CANDIDATES)] == [*CANDIDATES]
    assert {*map(unpinned_name, names[len(CANDIDATES) :])} == {*CANDIDATES}
    assert settings.budgets == (32, 64, 128, 256)
    spoken = LexicalRecordings([Transcript("one", talk[1:])])
    without = replay_settings(spoken, [policy_named("h2o")])
    assert [row.name for row in without.policies] == ["h2o"]


def own_config(**more: Any) -> str:
    """Return a model of 12 layers with 4 heads of 8 dimensions, 2 x 4 x 8 numbers in each."""
    sizes = {"num_hidden_layers": 12, "num_attention_heads": 4, "hidden_size": 32}
    return json.dumps(sizes | more)


@pytest.mark.parametrize(
    ("more", "layers", "numbers"),
    [
        ({}, 12, 64),
        ({"sliding_window": None}, 12, 64),
        ({"sliding_window": 4096, "use_sliding_window": False}, 12, 64),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 12, 576),
        ({"layer_types": ["full_attention", *["sliding_attention"] * 5] * 2}, 2, 64),
        ({"layer_types": ["linear_attention", "full_attention"] * 6}, 6, 64),
        ({"sliding_window_pattern": "LLLG", "layer_types": ["full_attention"] * 12}, 12, 64),
        ({"num_kv_shared_layers": 6, "layer_types": ["full_attention"] * 12}, 6, 64),
    ],
)
def test_only_what_grows_with_the_dialog_counts(
    more: dict[str, Any], layers: int, numbers: int
) -> None:
    shape = shape_of(json.loads(own_config(**more)))
    assert (shape.layers, shape.numbers) == (layers, numbers)
    some = f"the {layers} of 12 layers that attend to all tokens"
    assert (some in shape.name) == (layers < 12)


def test_a_config_of_ones_own_gives_a_shape(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for config, entry_bytes in (
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}, 2 * 2 * 4 * 8 * 2),
        (
            {
                "text_config": {
                    "num_hidden_layers": 3,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 2,
                    "head_dim": 16,
                    "torch_dtype": "float32",
                }
            },
            2 * 3 * 2 * 16 * 4,
        ),
    ):
        file.write_text(json.dumps(config))
        assert read_shape(str(file)).entry_bytes == entry_bytes
        assert read_shape(str(tmp_path)).entry_bytes == entry_bytes


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "config.json does not say the model's layers"),
        ('{"num_hidden_layers": -1}', "num_hidden_layers in config.json is -1"),
        ('{"num_hidden_layers": 2}', "does not say the model's heads and head width"),
        ('{"num_hidden_layers": 1000000000000}', "in config.json is 10000000000"),
        (own_config(num_key_value_heads=[1, 2]), "num_key_value_heads in config.json is"),
        (
            own_config(torch_dtype="float8_e4m3fn"),
            "numbers 'float8_e4m3fn', which is unknown",
        ),
        (own_config(torch_dtype=["x"]), "which is unknown: give"),
        (own_config(block_types=["recurrent", "attention"]), "has 'block_types' but does not say"),
        (own_config(attention_chunk_size=8192), "has 'attention_chunk_size' but does not say"),
        (own_config(num_kv_shared_layers=20), "no layer attends to all tokens"),
        (own_config(use_sliding_window=False, mamba_d_state=16), "has 'mamba_d_state' but does"),
        (own_config(multi_query=True), "has 'multi_query' but does not say"),
        (own_config(attn_layer_period=8), "has 'attn_layer_period' but does not say"),
        (own_config(full_attention_interval=4), "has 'full_attention_interval' but does not"),
        (own_config(sliding_window_pattern=6), "has 'sliding_window_pattern' but does not say"),
        (own_config(sliding_window=4096), "has 'sliding_window' but does not say which"),
        (own_config(mamba_d_state=16), "has 'mamba_d_state' but does not say which"),
        (own_config(layer_types=["linear_attention"]), "no layer attends to all tokens"),
        ("[", "config.json"),
    ],
)
def test_a_config_that_is_not_right_gets_one_sentence(
    tmp_path: Path, content: str, sentence: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_shape(str(file))
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    "name",
    ["gpt", "0x1x2x3", "1x2x3", "32x8x128x17", "10000x1x1x8", "9" * 50, "9" * 300, "32x8x128x16 "],
)
def test_an_unknown_shape_gets_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"is unknown: choose from llama-3\.1-8b") as caught:
        read_shape(name)
    assert_one_sentence(caught.value)
