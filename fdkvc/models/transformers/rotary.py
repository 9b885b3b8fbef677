"""Rotary positions of keys: removed and applied again.

Su et al. 2021, *RoFormer*; positions that close the gaps: Xiao et al. 2023, *Efficient Streaming
Language Models with Attention Sinks*.

How each layer of a model rotates is found once, by `rotations`:

1. The model reads the same single tokens at position 0 and at position `APART`.
2. A layer whose keys are the same at both does not rotate. One whose values differ knows positions
   otherwise, and is refused.
3. For the others, every call of a rotary module that was seen is tried, with every order of its
   results, until a `Rotation` turns the first keys into the later ones, and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from fdkvc.models.transformers.attention_hooks import Attention, Probe, eager, this_pass

MOVING = ("dynamic", "longrope")
"""Types of rotary positions whose angles depend on the length of the text."""

APART = 3
"""The position at which keys are compared with those at position 0."""

TURNED = "fdkvc_turned"
"""The attribute of a model with how its layers rotate keys."""

NOT_ROTARY = 'this model has no rotary positions that can be changed: choose positions="kept"'

ANGLE_COLUMNS = (slice(None), slice(0, None, 2), None)
"""Where each angle stands once among the cosines: at all places, at every second one, or (None) in
the first half."""


@dataclass(frozen=True, eq=False)
class Rotation:
    """How a layer rotates the first numbers of its keys; the rest stays as it is."""

    angles: Any
    """The module that computes cosines and sines."""
    inputs: tuple[Any, ...]
    """What it is called with: positions, and numbers of the type of the results."""
    named_inputs: Mapping[str, Any]
    """The same by name."""
    sines_first: bool
    """Whether it returns sines before cosines."""
    angle_columns: slice | None
    """One of `ANGLE_COLUMNS`."""
    interleaved: bool
    """Whether neighbours make a pair, or numbers that are half of the rotated ones apart."""

    def __call__(self, keys: Any, positions: Any, *, inverse: bool = False) -> Any:
        """Rotate keys (K, n, h) to positions (K, n), or back from there to position 0."""
        turn = self._turn(keys, positions)
        if inverse:
            turn = turn.conj()
        # A pair of numbers is turned as a complex number (K, n, h / 2).
        width = 2 * turn.shape[-1]
        rotated = keys[..., :width].float()
        pairs = rotated.unflatten(-1, (-1, 2) if self.interleaved else (2, -1))
        if not self.interleaved:
            pairs = pairs.mT
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
        if not self.interleaved:
            turned = turned.mT
        flat = turned.flatten(-2).to(keys.dtype)
        return torch.cat([flat, keys[..., width:]], dim=-1)

    def _turn(self, keys: Any, positions: Any) -> Any:
        """Return e^(iφ) of the angles φ at positions (K or 1, n, h / 2)."""

        def argument(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if value.is_floating_point():
                return keys
            return positions.expand(*value.shape[:-2], -1, -1)

        named = {name: argument(value) for name, value in self.named_inputs.items()}
        cos, sin = self.angles(*map(argument, self.inputs), **named)
        if self.sines_first:
            cos, sin = sin, cos
        # A model of images has positions of several axes, the same in a text: take the first
        # (K or 1, n, h or h / 2).
        turn = torch.complex(cos.float(), sin.float())
        turn = turn.reshape(-1, *turn.shape[-3:])[0]
        columns = self.angle_columns or slice(turn.shape[-1] // 2)
        turn = turn[..., columns]
        # Some models scale cosines and sines by a factor, which the keys already have.
        return turn / turn.abs()


def rotations(model: Any, attention: Attention) -> Mapping[int, Rotation]:
    """Return how the layers of a model rotate their keys; one that does not is not in it.

    From then on `this_pass` has the positions of each forward pass. Raises a ValueError if a layer
    knows positions otherwise, or a rotation cannot be undone for a single key.
    """
    turned: dict[int, Rotation] | None = vars(model).get(TURNED)
    if turned is None:
        turned = dict(_found(model, [*attention.modules]))
        for angles in {rotation.angles for rotation in turned.values()}:
            angles.register_forward_pre_hook(_note_positions, with_kwargs=True)
        vars(model)[TURNED] = turned
    return turned


def _found(model: Any, layers: Sequence[int]) -> Iterator[tuple[int, Rotation]]:
    """Yield the rotating layers, by the keys of a single token at two positions."""
    # 1. Read the tokens at both positions, and note how rotary modules are called meanwhile.
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    hooks = []
    for part in model.modules():
        if "rotary" in type(part).__name__.lower():
            note = part.register_forward_pre_hook
            hooks.append(note(lambda *call: calls.append(call), with_kwargs=True))
    try:
        first, later = (Probe(model, start).given for start in (0, APART))
    finally:
        for hook in hooks:
            hook.remove()
    # 2. Make every rotation that these calls could mean.
    tried = []
    for call in calls[: len(calls) // 2]:  # those of the first pass
        if not any(kind in str(getattr(call[0], "rope_type", "")) for kind in MOVING):
            orders = product((False, True), ANGLE_COLUMNS, (False, True))
            tried += [Rotation(*call, *order) for order in orders]
    # 3. Find the one that turns the keys of each layer as the model did.
    for layer in layers:
        keys, values = first[layer]
        turned, later_values = later[layer]
        tolerance = 4 * torch.finfo(keys.dtype).eps + 1e-4
        largest = float(values.abs().max())
        if not torch.allclose(values, later_values, rtol=tolerance, atol=tolerance * largest):
            raise ValueError(NOT_ROTARY)
        # Exactly the same: without positions, the same token gives the same key.
        if torch.equal(keys, turned):
            continue
        errors = [_error(rotation, keys, turned) for rotation in tried] or [1.0]
        smallest_error = min(errors)
        if not smallest_error <= tolerance:  # nor if it is not a number
            raise ValueError(NOT_ROTARY)
        yield layer, tried[errors.index(smallest_error)]


def _error(rotation: Rotation, keys: Any, turned: Any) -> float:
    """Return how far rotated keys (B, K, 1, h) are from a model's, relative to the largest number.

    1 for a rotation that does not fit the keys at all.
    """
    with suppress(RuntimeError, TypeError, ValueError), torch.no_grad():
        flat = keys.flatten(0, 1)
        turned = turned.flatten(0, 1)
        positions = torch.full(flat.shape[:2], APART, device=keys.device)
        forth = (rotation(flat, positions) - turned).abs().max()
        inverse = (rotation(turned, positions, inverse=True) - flat).abs().max()
        return float(max(forth, inverse) / keys.abs().max())
    return 1.0


@eager
def _note_positions(_: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Note the positions with which a rotary module is called: its only whole numbers."""
    for value in (*inputs, *named.values()):
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            this_pass.positions = value
