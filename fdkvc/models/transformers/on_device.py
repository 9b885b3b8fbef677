"""Arrays on a model's device that NumPy's own functions compute with there.

Policies are written with NumPy. An `OnDevice` stands for an array of vectors, such as the keys of
all entries: where a policy multiplies, sums or normalizes it, torch does so on the device, by the
protocols that NumPy has for this (NEP 13 and 18). The result is an `OnDevice` again, so that the
host waits for the device only once: when it needs the numbers, as for a function that torch lacks,
or to choose which entries stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from fdkvc.models.transformers.layer import on_device_of

FUNCTIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    np.concatenate: lambda parts, axis=0: torch.cat(parts, dim=axis),
    # `torch.equal` returns one answer for the whole array.
    np.equal: torch.eq,
    np.linalg.norm: lambda x, axis, keepdims=False: torch.linalg.vector_norm(
        x, dim=axis, keepdim=keepdims
    ),
    # With one number, which `torch.maximum` refuses.
    np.maximum: lambda x, y: torch.clamp(x, min=y) if torch.is_tensor(x) else y.clamp(min=x),
    np.moveaxis: torch.movedim,
    np.where: torch.where,
}
"""What of NumPy is computed on the device, beside the ufuncs that torch has under their names."""

LIKE = (np.zeros_like, np.ones_like, np.empty_like, np.full_like)
"""Functions that need an array's shape and type alone."""


class OnDevice(NDArrayOperatorsMixin):
    """An array (B, …) on a device; what torch lacks is computed from a copy.

    Examples
    --------
    >>> keys = OnDevice(torch.ones(2, 3, 4))
    >>> np.asarray(np.linalg.norm(keys * np.arange(3)[:, None], axis=-1)).tolist()
    [[0.0, 2.0, 4.0], [0.0, 2.0, 4.0]]
    """

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.ndim = tensor.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers in NumPy."""
        empty: NDArray[Any] = torch.empty(0, dtype=self.tensor.dtype).numpy()
        return empty.dtype

    def __len__(self) -> int:
        return len(self.tensor)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        # Whatever `copy` says, as nobody can write to it.
        array = self.tensor.cpu().numpy()
        array.flags.writeable = False  # a number written to a copy would be lost in silence
        return np.asarray(array, dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *arguments: Any, **named: Any
    ) -> Any:
        outputs = named.pop("out", None)
        on_device = None
        if method == "__call__":
            on_device = FUNCTIONS.get(ufunc, getattr(torch, ufunc.__name__, None))
        result = self._apply(getattr(ufunc, method), on_device, arguments, named)
        if outputs is not None:
            outputs[0][...] = result
        return result if outputs is None else outputs[0]

    def __array_function__(
        self, function: Any, _: Any, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if function in LIKE:
            return function(
                np.broadcast_to(np.empty((), self.dtype), self.shape), *arguments[1:], **named
            )
        return self._apply(function, FUNCTIONS.get(function), arguments, named)

    def _apply(
        self, function: Any, on_device: Any, arguments: Any, named: Mapping[str, Any]
    ) -> Any:
        if on_device is None:
            return function(*_copies(arguments), **named)
        return OnDevice(on_device(*self._own(arguments), **named))

    def _own(self, value: Any) -> Any:
        """Return arrays, also within tuples and lists, as tensors on this device."""
        if isinstance(value, tuple | list):
            return type(value)(map(self._own, value))
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            # torch takes no array with negative strides, such as a reversed one.
            return on_device_of(self.tensor, np.ascontiguousarray(value))
        return value.tensor if isinstance(value, OnDevice) else value

    def __getitem__(self, index: Any) -> Any:
        return OnDevice(self.tensor[self._own(index)])  # a view where NumPy's is one

    def __setitem__(self, index: Any, value: Any) -> None:
        index = self._own(index)
        value = self._own(value)
        if (
            isinstance(index, torch.Tensor)
            and index.dtype == torch.bool
            and np.isscalar(value)
        ):
            # Otherwise the host would wait for the mask.
            self.tensor.masked_fill_(index, value)
        else:
            self.tensor[index] = value

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of a copy, such as ``view``."""
        # By such names NumPy and `copy` ask for protocols, for which a copy on the host must not
        # answer.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def astype(self, dtype: Any) -> Any:
        """Return it with numbers of another type."""
        return OnDevice(self.tensor.to(torch.from_numpy(np.empty(0, dtype)).dtype))

    def copy(self) -> Any:
        """Return a contiguous copy."""
        return OnDevice(self.tensor.clone(memory_format=torch.contiguous_format))

    def reshape(self, *shape: Any) -> Any:
        """Return it in another shape."""
        return OnDevice(self.tensor.reshape(*shape))

    def take(self, index: NDArray[np.intp], axis: int = 0) -> Any:
        """Return the entries at an index."""
        return self[index] if axis == 0 else np.take(self, index, axis)

    def sum(self, axis: int, *, keepdims: bool = False) -> Any:
        """Return sums over an axis."""
        return OnDevice(self.tensor.sum(dim=axis, keepdim=keepdims))

    def max(self, axis: int, *, keepdims: bool = False) -> Any:
        """Return the largest over an axis."""
        return OnDevice(self.tensor.amax(dim=axis, keepdim=keepdims))


def _copies(value: Any) -> Any:
    """Return arrays, also within tuples and lists, as arrays of NumPy."""
    if isinstance(value, tuple | list):
        return type(value)(map(_copies, value))
    return np.asarray(value) if isinstance(value, OnDevice) else value
