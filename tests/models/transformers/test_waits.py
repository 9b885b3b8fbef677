"""How often the host waits for the device in a turn: once for each group of layers."""

import sys
from collections.abc import Callable
from typing import Any, Self

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fdkvc.models.numpy import head_tokens
from fdkvc.models.transformers.cache import PolicyCache
from fdkvc.policies import read_policy
from tests.library import CACHE, NO_OLD_NAME, Numbers, made, text
from tests.models.transformers.test_live import WITHIN
from tests.models.transformers.test_observed import POLICIES, TEXT_ALONE

pytestmark = [NO_OLD_NAME, pytest.mark.filterwarnings("ignore::UserWarning")]

METHODS = {
    getattr(torch.Tensor, name)
    for name in ("cpu", "item", "tolist", "__bool__", "__int__", "__float__", "__index__")
}
OPERATIONS = {  # whose result has a shape that depends on numbers, or is a number on the host
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::bincount",
    "aten::repeat_interleave.Tensor",
    "aten::repeat_interleave.self_Tensor",
}
LAYERS = 3
EVERY = (*POLICIES, *(f"{wrapper}({key})" for wrapper in WITHIN for key in ("keydiff", "tova")))


class Waits:
    """Counts what the host would wait for if the tensors were on another device.

    A copy that says ``non_blocking`` is not waited for: on the CPU, where this runs, it says no.
    """

    def __init__(self) -> None:
        self.count, waits = 0, self

        class Functions(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(
                self, function: Any, _: Any, given: Any = (), named: Any = None
            ) -> Any:
                named = named or {}
                places = [
                    value
                    for value in (*given[1:], *named.values())
                    if isinstance(value, str | torch.device)
                ]
                moved = function is torch.Tensor.to and places and "non_blocking" not in named
                caller = sys._getframe(1).f_globals["__name__"]  # a model's tensors are there
                moved = moved and caller.startswith(("fdkvc", "tests"))
                waits.count += function in METHODS or bool(moved)
                return function(*given, **named)

        class Operations(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, operation: Any, _: Any, given: Any = (), named: Any = None
            ) -> Any:
                name = operation._schema.name
                name += f".{operation._overloadname}" if "repeat" in name else ""
                masks = name in ("aten::index", "aten::index_put_") and any(
                    index is not None and index.dtype == torch.bool for index in given[1]
                )
                waits.count += name in OPERATIONS or masks
                return operation(*given, **(named or {}))

        self._modes = Functions(), Operations()

    def __enter__(self) -> Self:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


@pytest.mark.parametrize(
    ("use", "waits"),
    [
        (lambda x: x.to("cpu"), 1),
        (lambda x: x.to("cpu", non_blocking=False), 0),
        (lambda x: x.tolist(), 1),
        (lambda x: x[x > 1], 1),
        (lambda x: (x > 1).any() and 1, 1),
        (lambda x: x.repeat_interleave(torch.tensor([1, 2])), 1),
        (lambda x: x.repeat_interleave(2), 0),
        (lambda x: x[torch.tensor([1])].where(x > 1, 0).cumsum(0), 0),
    ],
)
def test_what_the_host_waits_for_is_counted(use: Callable[[Any], Any], waits: int) -> None:
    with Waits() as counted:
        use(torch.arange(1.0, 3))
    assert min(counted.count, 1) == waits


def most_waits(model: Any, key: str, **how: Any) -> tuple[int, PolicyCache]:
    """Return how often a turn waits at most, its pass and its end."""
    cache = PolicyCache(read_policy(key), 6, model, by_itself=False, tokenizer=Numbers(), **how)
    counts = []
    for length in (9, 4):
        with Waits() as counted:
            model(text(length), **{CACHE: cache})
            cache.end_turn()
        counts.append(counted.count)
    return max(counts), cache


def allowed(key: str, cache: PolicyCache, decides: str) -> int:
    """Return how often a turn under a policy may wait."""
    if key in TEXT_ALONE:
        return 0
    return len(cache._states[0]) if decides == "head" else LAYERS


@pytest.mark.parametrize("decides", ["head", "layer", "model"])
@pytest.mark.parametrize("first", range(4))
def test_a_turn_waits_once_for_each_group_of_layers(llama: Any, decides: str, first: int) -> None:
    for key in EVERY[first::4]:
        most, cache = most_waits(llama, key, decides=decides)
        assert most <= allowed(key, cache, decides), key


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_so_it_does_with_closed_gaps(attention: str) -> None:
    for key in ("learned", "h2o", "keydiff"):
        most, cache = most_waits(made("llama", attention), key, positions="slots")
        assert most <= allowed(key, cache, "head"), key


@pytest.mark.parametrize(("key", "parts"), [("h2o", 1), ("sinks(tova)", 1), ("snapkv", 2 * LAYERS)])
def test_it_waits_at_most_once_for_each_part_of_the_heads(
    llama: Any, key: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_tokens, "PART_NUMBERS", 1)  # one KV head
    assert most_waits(llama, key)[0] == parts


def test_words_are_known_without_waiting() -> None:
    assert {"fifo", "clear-results", "learned", "weighted-recency"} <= {*TEXT_ALONE}
