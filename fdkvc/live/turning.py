"""Turning: rotary positions of keys, taken away and given anew.

Su et al. 2021, *RoFormer*; that what is left of a text closes up, Xiao et al. 2023, *Efficient
Streaming Language Models with Attention Sinks*.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch

from fdkvc.live.listening import attention_modules

MOVING = ("dynamic", "longrope")
"""Kinds of rotary positions whose angles depend on how long the text is."""


class Turning:
    """The rotary positions of a model, as its own attention turns keys by them.

    Raises
    ------
    ValueError
        If it has none, or such that a key cannot be turned back by itself.
    """

    def __init__(self, model: Any) -> None:
        (module, *_) = attention_modules(model).values()
        self._turn = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
        named = dict(model.named_modules()).items()
        self._angles = next((each for name, each in named if name.endswith("rotary_emb")), None)
        if self._turn is None or self._angles is None:
            raise ValueError("this model has no rotary positions that keys could be given anew")
        config = model.config.get_text_config(decoder=True)
        self._types = getattr(config, "layer_types", None)
        kind = str(getattr(self._angles, "rope_type", ""))
        key, where = torch.randn(1, 5, module.head_dim), torch.arange(2, 7)[None]
        try:
            back = self(self(key, where, 0), where, 0, back=True)
            same = any(each in kind for each in MOVING) is False and torch.allclose(
                back, key, atol=1e-4
            )
        except (RuntimeError, TypeError):  # of which only a part is turned, or otherwise
            same = False
        if not same:
            raise ValueError("this model's rotary positions are not such that keys turn back")

    def __call__(self, keys: Any, positions: Any, layer: int, *, back: bool = False) -> Any:
        """Turn keys (K, n, h) to their positions (K, n), or from there back to position 0."""
        more = ()
        if "layer_type" in inspect.signature(self._angles.forward).parameters:
            more = (self._types[layer],)
        cos, sin = self._angles(keys, positions, *more)
        _, turned = self._turn(keys[:, None], keys[:, None], cos, -sin if back else sin)
        return turned[:, 0]
