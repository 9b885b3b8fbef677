"""Plans: which policy and how much cache, from tables made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.experiments.model_shape import SHAPES, read_shape, shape_of
from fdkvc.experiments.plan import (
    plan_sentence,
    plan_table,
    smallest_budgets,
)
from fdkvc.experiments.replay import REPLAYED, Replay
from fdkvc.kinds.replay import plan_text
from fdkvc.policies import policy_named
from fdkvc.words import BEST
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
    BEST: (1.0, 1.0, 1.0),
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
    found: Any = smallest_budgets(plan).set_index(["policy", "target"]).budget
    assert found["fifo", 0.9] == 200
    assert found["fifo", 0.95] == 400
    assert np.isnan(found["fifo", 0.99])
    assert found["h2o", 0.9] == 200
    assert np.isnan(found["h2o", 0.95]), "it falls below again at 400"
    assert [found["surprisal", each] for each in (0.9, 0.95, 0.99)] == [200, 200, 400]
    text = plan_text(smallest_budgets(plan), SHAPE)
    assert "recall 90 %" in text
    assert "200 entries, 410 kB" in text


def sentence_of(table: pd.DataFrame) -> str:
    plan = plan_table(SETTINGS, table, TOKENS, SHAPE)
    return plan_sentence(SETTINGS, table, plan, TOKENS, SHAPE)


def test_the_sentence_names_policy_budget_saving_and_ties() -> None:
    sentence = sentence_of(replayed())
    assert sentence.startswith("Surprisal at 200 entries has a call-argument recall of 96.0 % (")
    assert "the smallest at which a policy reaches 95 %. At the end of a dialog" in sentence
    assert "1,000 tokens, the cache then takes 410 kB instead of 2.0 MB in" in sentence
    assert "80 % less." in sentence
    assert sentence.endswith("Every other policy differs at this budget.")

    tie = sentence_of(replayed(h2o=(0.6, 0.9599, 0.96)))
    assert tie.endswith("Not distinguishable at this budget: H2O.")
    few = sentence_of(replayed(3))
    assert few.endswith("An interval needs 4 clusters, so no policy is distinguishable.")
    low: Any = dict.fromkeys(("fifo", "h2o", "surprisal"), (0.1, 0.2, 0.3))
    high = replayed().query("policy == 'surprisal'")
    none = sentence_of(replayed(**low))
    assert none.startswith("No policy reaches a call-argument recall of 90 % within 400 entries")
    fits = plan_sentence(SETTINGS, high, plan_table(SETTINGS, high, [100], SHAPE), [100], SHAPE)
    assert (
        "A dialog of the mean length, 100 tokens, fits into the cache, so nothing is saved." in fits
    )
    assert fits.endswith("No other policy was run.")
    empty = sentence_of(replayed().iloc[:0])
    assert empty.startswith("There is no plan: these dialogs have no calls")


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
        ({"multi_query": True}, 12, 16),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 2}, 12, 32),
        ({"layer_types": ["full_attention", *["sliding_attention"] * 5] * 2}, 2, 64),
        ({"layer_types": ["linear_attention", "full_attention"] * 6}, 6, 64),
        ({"sliding_window_pattern": "LLLG", "layer_types": ["full_attention"] * 12}, 12, 64),
        ({"full_attention_interval": 4, "linear_num_key_heads": 2}, 3, 64),
        ({"sliding_window_pattern": 6, "sliding_window": 512}, 2, 64),
        ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16}, 1, 64),
        ({"attn_layer_indices": [2, 7, 7, 99], "mamba_n_heads": 4}, 2, 64),
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
        ("{}", "config.json does not say the model's layers: give layers x KV heads"),
        ('{"num_hidden_layers": -1}', "num_hidden_layers in config.json is -1, but must be"),
        ('{"num_hidden_layers": 2}', "does not say the model's heads and head width: give"),
        ('{"num_hidden_layers": 1000000000000}', "num_hidden_layers in config.json is 10000000000"),
        (own_config(num_key_value_heads=[1, 2]), "num_key_value_heads in config.json is"),
        (
            own_config(torch_dtype="float8_e4m3fn"),
            "numbers 'float8_e4m3fn', which is unknown: give",
        ),
        (own_config(torch_dtype=["x"]), "which is unknown: give"),
        (own_config(block_types=["recurrent", "attention"]), "has 'block_types' but does not say"),
        (own_config(attention_chunk_size=8192), "has 'attention_chunk_size' but does not say"),
        (own_config(num_kv_shared_layers=20), "no layer attends to all tokens"),
        (own_config(use_sliding_window=False, mamba_d_state=16), "has 'mamba_d_state' but does"),
        (own_config(sliding_window=4096), "has 'sliding_window' but does not say which layers"),
        (own_config(mamba_d_state=16), "has 'mamba_d_state' but does not say which layers"),
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
