"""Keys and values in 8 or 4 bits: each vector between its own minimum and maximum.

As in asymmetric quantization per token; the groups of Liu et al. 2024, *KIVI: A Tuning-Free
Asymmetric 2bit Quantization for KV Cache*, but of keys, too, so that an entry moves as it is.
"""

from typing import Any

import torch

BITS = (4, 8)
"""Supported bits of a number."""


def quantized(vectors: Any, bits: int) -> tuple[Any, ...]:
    """Return vectors (…, h) as codes (…, h · bits / 8), step and minimum (…, 1).

    Examples
    --------
    >>> parts = quantized(torch.tensor([[-1.0, 0.0, 0.1, 2.0]]), 4)
    >>> dequantized(parts, 4).tolist()
    [[-1.0, 0.0, 0.2..., 2.0]]
    """
    wide = vectors.float()
    low, high = wide.aminmax(dim=-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    codes = ((wide - low) / step.where(step > 0, 1)).round().to(torch.uint8)
    if bits == 4:
        codes = codes[..., ::2] * 16 + codes[..., 1::2]
    return codes, step, low


def dequantized(parts: tuple[Any, ...], bits: int) -> Any:
    """Return the vectors of `quantized` in single precision."""
    codes, step, low = parts
    if bits == 4:
        codes = torch.stack([codes // 16, codes % 16], dim=-1).flatten(-2)
    return codes.float() * step + low
