"""Arrays on a model's device that NumPy's own functions compute with there.

Policies are written with NumPy. An `OnDevice` stands for an array of vectors, such as the keys of
all entries: where a policy multiplies, sums or normalizes it, torch does so on the device, by the
protocols that NumPy has for this (NEP 13 and 18). What has at most one number for each row and
entry is an array of NumPy again, and costs no more than that to copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

FUNCTIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    np.concatenate: lambda parts, axis=0: torch.cat(parts, dim=axis),
    np.linalg.norm: lambda x, axis, keepdims=False: torch.linalg.vector_norm(
        x, dim=axis, keepdim=keepdims
    ),
    np.moveaxis: torch.movedim,
    np.where: torch.where,
    np.zeros_like: lambda x, shape: x.new_zeros(shape),
}
"""What of NumPy is computed on the device, beside the ufuncs that torch has under their names."""


class OnDevice(NDArrayOperatorsMixin):
    """An array (B, C, …) on a device; what torch lacks is computed from a copy.

    Examples
    --------
    >>> keys = OnDevice(torch.ones(2, 3, 4))
    >>> np.linalg.norm(keys * np.arange(3)[:, None], axis=-1).tolist()
    [[0.0, 2.0, 4.0], [0.0, 2.0, 4.0]]
    """

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape, self.ndim = tuple(tensor.shape), tensor.ndim

    def __len__(self) -> int:
        return len(self.tensor)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.tensor.cpu().numpy()
        array.flags.writeable = False  # a number written to a copy would be lost in silence
        return np.asarray(array, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **named: Any) -> Any:
        on_device = getattr(torch, ufunc.__name__, None) if method == "__call__" else None
        out = named.pop("out", None)
        result = self._apply(getattr(ufunc, method), on_device, given, named)
        if out is None:
            return result
        out[0].tensor.copy_(torch.as_tensor(self._own(result)))
        return out[0]

    def __array_function__(
        self, function: Any, _: Any, given: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        return self._apply(function, FUNCTIONS.get(function), given, named)

    def _apply(self, function: Any, on_device: Any, given: Any, named: Mapping[str, Any]) -> Any:
        if on_device is None:
            return function(*_copies(given), **named)
        return _result(on_device(*self._own(given), **named))

    def _own(self, value: Any) -> Any:
        """Return arrays, also within tuples and lists, as tensors on this device."""
        if isinstance(value, tuple | list):
            return type(value)(map(self._own, value))
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.ascontiguousarray(value)).to(self.tensor.device)
        return value.tensor if isinstance(value, OnDevice) else value

    def __getitem__(self, index: Any) -> Any:
        return _result(self.tensor[self._own(index)].clone())

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of a copy, such as ``view``."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def astype(self, dtype: Any) -> Any:
        """Return it with numbers of another type."""
        return _result(self.tensor.to(torch.from_numpy(np.empty(0, dtype)).dtype))

    def copy(self) -> Any:
        """Return a contiguous copy."""
        return _result(self.tensor.contiguous())

    def reshape(self, *shape: Any) -> Any:
        """Return it in another shape."""
        return OnDevice(self.tensor.reshape(*shape))

    def take(self, index: NDArray[np.intp], axis: int = 0) -> Any:
        """Return the entries at an index."""
        return _result(self.tensor[self._own(index)]) if axis == 0 else np.take(self, index, axis)

    def sum(self, axis: int, *, keepdims: bool = False) -> Any:
        """Return sums over an axis."""
        return _result(self.tensor.sum(dim=axis, keepdim=keepdims))

    def max(self, axis: int, *, keepdims: bool = False) -> Any:
        """Return the largest over an axis."""
        return _result(self.tensor.amax(dim=axis, keepdim=keepdims))


def _result(tensor: Any) -> Any:
    """Return what policies decide by, at most (B, C), as an array of NumPy."""
    return OnDevice(tensor) if tensor.ndim > 2 else tensor.cpu().numpy()


def _copies(value: Any) -> Any:
    """Return arrays, also within tuples and lists, as arrays of NumPy."""
    if isinstance(value, tuple | list):
        return type(value)(map(_copies, value))
    return np.asarray(value) if isinstance(value, OnDevice) else value
