"""Run the checks of `fdkvc.conformance` on NVIDIA's kvpress, in a separate environment.

    python3 -m venv kvpress && kvpress/bin/pip install kvpress==0.5.5
    kvpress/bin/python -m benchmarks.research.conformance_kvpress

It needs another version of *transformers* than this project. A small Llama with random weights
reads several turns under presses used in three ways: at every turn as documented for a prompt; the
same with the positions of its own pipeline; and with its decoding press, which compresses at every
forward pass. The tokens held are identified by their keys, which these presses do not change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import transformers

from fdkvc.conformance import Fault, Subject, Turn, checks
from fdkvc.conformance.checks import Check
from fdkvc.conformance.of_decoder import padded
from fdkvc.conformance.of_transformers import TransformersModel
from fdkvc.conformance.subject import key_difference

BUDGET = 24
SINKS = 4
WAYS = ("each turn", "pipeline's positions", "decoding")


class Watched(transformers.DynamicCache):  # type: ignore[misc]
    """The library's cache; it keeps the keys that a layer had before a press removed some."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: dict[int, Any] = {}

    def update(self, keys: Any, values: Any, layer: int, *args: Any, **named: Any) -> Any:
        """Add keys and values to a layer."""
        found = super().update(keys, values, layer, *args, **named)
        self.whole[layer] = found[0]
        return found


class Pressed:
    """A cache under a press; see `fdkvc.conformance.EvictionCache`."""

    def __init__(self, model: Any, press: Any, way: str, samples: int) -> None:
        self.model, self.press, self.way, self.cache = model, press, way, Watched()
        self.seen = 0
        self.held: Any = None

    def feed(self, tokens: Any) -> Turn:
        """Read a turn under the press."""
        return self._turn(tokens, self._pressing(tokens.shape[1]))

    def write(self, tokens: Any) -> Turn:
        """Read a token, under the press if it compresses while a model writes."""
        return self._turn(tokens, self._pressing(1) if self.way == "decoding" else nullcontext())

    def _pressing(self, n: int) -> Any:
        from kvpress import DecodingPress, PrefillDecodingPress

        if self.way == "decoding":
            decoding = DecodingPress(self.press, compression_interval=1, target_size=BUDGET)
            if self.seen:
                return decoding(self.model)
            self.press.compression_ratio = ratio(n)
            return PrefillDecodingPress(self.press, decoding)(self.model)
        self.press.compression_ratio = ratio(self.seen + n)
        return self.press(self.model)

    def _turn(self, tokens: Any, pressing: Any) -> Turn:
        samples, n = tokens.shape
        more = {}
        if self.way != "each turn":
            more["position_ids"] = torch.arange(self.seen, self.seen + n)[None].expand(samples, -1)
        with torch.inference_mode(), pressing:
            output = self.model(
                input_ids=torch.from_numpy(tokens), past_key_values=self.cache, **more
            )
        new = np.arange(self.seen, self.seen + n)
        self.seen += n
        layers = []
        for number, layer in enumerate(self.cache.layers):
            whole, left = self.cache.whole[number].numpy(), layer.keys.numpy()
            before = self.held[:, number] if self.held is not None else None
            layers.append(padded([*held_by_keys(whole, left, before, new)]))
        self.held = np.stack([np.stack(each) for each in layers], axis=1)
        return Turn(output.logits.float().numpy(), self.held)


def ratio(tokens: int) -> float:
    """Return the compression ratio that leaves the budget of so many tokens."""
    return max(0.0, 1 - (BUDGET + 0.5) / tokens) if tokens > BUDGET else 0.0


def held_by_keys(whole: Any, left: Any, before: Any, new: Any) -> Iterator[Any]:
    """Yield the tokens that each head of each text holds, identified by their keys."""
    for text, heads in enumerate(whole):
        found = []
        for head, keys in enumerate(heads):
            own = np.empty(0, np.intp) if before is None else before[text, head]
            ids = np.concatenate([own, new])
            if left.shape[2] < len(keys):
                same = (left[text, head][:, None] == keys[None]).all(axis=2)
                ids = ids[same.argmax(axis=1)]
            found.append(ids)
        yield np.stack(found)


def presses() -> dict[str, tuple[Callable[[], Any], dict[str, Any]]]:
    """Return presses by name, each with its promises."""
    import kvpress

    return {
        "KnormPress": (kvpress.KnormPress, {}),
        "KeyDiffPress": (kvpress.KeyDiffPress, {"scores": key_difference}),
        "StreamingLLMPress": (lambda: kvpress.StreamingLLMPress(n_sink=SINKS), {"sinks": SINKS}),
        "TOVAPress": (kvpress.TOVAPress, {}),
        "SnapKVPress": (lambda: kvpress.SnapKVPress(window_size=2, kernel_size=5), {}),
        "ExpectedAttentionPress": (kvpress.ExpectedAttentionPress, {"sinks": SINKS}),
    }


def model() -> Any:
    """Make a small Llama of random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.4,
    )
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def main() -> None:
    """Print the result of each check for each press in each way."""
    from importlib.metadata import version

    logging.disable(logging.WARNING)
    names = ("kvpress", "transformers", "torch")
    print(", ".join(f"{name} {version(name)}" for name in names))
    made = model()
    full = TransformersModel(made)
    for way in WAYS:
        for name, (press, promises) in presses().items():

            def begin(samples: int, press: Any = press, way: str = way) -> Pressed:
                return Pressed(made, press(), way, samples)

            every = 1 if way == "decoding" else None
            subject = Subject(begin, full, BUDGET, samples=3, every=every, **promises)
            found = {check.__name__: finding(check, subject) for check in checks(subject)}
            passed = [check for check, fault in found.items() if not fault]
            print(f"\n{way}, {name}: passes {', '.join(passed) or 'nothing'}")
            for check, fault in found.items():
                if fault:
                    print(f"  {check}: {fault}")


def finding(check: Check, subject: Subject) -> str:
    """Return the fault that a check finds in a press; empty if it passes."""
    try:
        check(subject)
    except Fault as error:
        return str(error)
    except Exception as error:  # what a press does with what it was not made for
        return f"breaks off: {type(error).__name__}: {str(error).splitlines()[0][:150]}"
    return ""


if __name__ == "__main__":
    main()
