"""Rotary positions of keys: removed and applied again.

Su et al. 2021, *RoFormer*; positions that close the gaps: Xiao et al. 2023, *Efficient Streaming
Language Models with Attention Sinks*.
"""

import inspect
import sys
from typing import Any

import torch

from fdkvc.live.attention_hooks import attention_modules

MOVING = ("dynamic", "longrope")
"""Types of rotary positions whose angles depend on the length of the text."""


def head_width(config: Any) -> int:
    """Return the dimensions of a key from a model's configuration."""
    named = getattr(config, "head_dim", None)
    return int(named or config.hidden_size // config.num_attention_heads)


class RotaryPositions:
    """A model's rotary positions, applied by the model's own code.

    Raises a ValueError if it has none, or a rotation cannot be undone for a single key.
    """

    def __init__(self, model: Any) -> None:
        module, *_ = attention_modules(model).values()
        file = sys.modules[type(module).__module__]
        rotary = [layer for name, layer in model.named_modules() if name.endswith("rotary_emb")]
        if not rotary or not hasattr(file, "apply_rotary_pos_emb"):
            raise ValueError("this model has no rotary positions that can be changed")
        self._turn: Any = file.apply_rotary_pos_emb
        self._angles: Any = rotary[0]
        config = model.config.get_text_config(decoder=True)
        by_type = "layer_type" in inspect.signature(self._angles.forward).parameters
        self._types = config.layer_types if by_type else None
        if not self._turns_back(torch.ones(1, 5, head_width(config), device=model.device)):
            raise ValueError("this model's rotary positions cannot be undone")

    def _turns_back(self, keys: Any) -> bool:
        if any(kind in str(getattr(self._angles, "rope_type", "")) for kind in MOVING):
            return False
        where = torch.arange(2, 7, device=keys.device)[None]
        try:
            back = self(self(keys, where, 0), where, 0, back=True)
        except RuntimeError:  # where only part of a key is rotated
            return False
        return bool(torch.allclose(back, keys, atol=1e-4))

    def __call__(self, keys: Any, positions: Any, layer: int, *, back: bool = False) -> Any:
        """Rotate keys (K, n, h) to positions (K, n), or back from there to position 0."""
        more = () if self._types is None else (self._types[layer],)
        cos, sin = self._angles(keys, positions, *more)
        _, turned = self._turn(keys[:, None], keys[:, None], cos, -sin if back else sin)
        return turned[:, 0]
