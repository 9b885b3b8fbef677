"""Arrays on a model's device for code that is written in NumPy.

Policies are NumPy code and call its functions and operators on whatever arrays they get. A
`DeviceArray` is a torch tensor behind NumPy's protocols for other arrays (NEP 13 and NEP 18), so
the same code computes scores and the selection on the device. A function without a counterpart here
runs in NumPy on a copy; `Device.moved` counts the bytes that cross.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray
from torch.nn import functional

Call = Callable[..., Any]

DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int32", "int64", "float32", "float64")
}
"""The torch dtype of each NumPy dtype; arrays of others stay with NumPy."""

NUMPY_DTYPES = {tensor: array for array, tensor in DTYPES.items()}


class Device:
    """A device, and the bytes moved between it and NumPy."""

    def __init__(self, device: Any) -> None:
        self.device, self.moved = device, 0
        """Bytes so far, in both directions; on the CPU those of its `DeviceArray` alone."""

    def array(self, values: Any) -> Any:
        """Return an array on the device."""
        if isinstance(values, DeviceArray):
            return values
        values = np.ascontiguousarray(values)
        if values.dtype not in DTYPES:
            return values
        self.moved += values.nbytes
        return DeviceArray(torch.tensor(values, device=self.device), self)

    def tensor(self, values: Any) -> Any:
        """Return an array as a tensor on the device."""
        if isinstance(values, DeviceArray):
            return values.tensor
        self.moved += values.nbytes if self.device.type != "cpu" else 0
        return torch.from_numpy(values).to(self.device)

    def numpy(self, tensor: Any) -> NDArray[Any]:
        """Return a tensor on the device as NumPy's array."""
        self.moved += tensor.nbytes if self.device.type != "cpu" else 0
        host: NDArray[Any] = tensor.cpu().numpy()
        return host


def _reduction(name: str) -> Call:
    """Return a method that reduces some axes, all by default, as torch's of this name."""

    def reduced(
        self: DeviceArray,
        axis: Any = None,
        dtype: DTypeLike | None = None,
        initial: float | None = None,
        keepdims: bool = False,
    ) -> DeviceArray:
        axes = tuple(range(self.ndim)) if axis is None else axis
        more = {} if dtype is None else {"dtype": DTYPES[np.dtype(dtype)]}
        result = getattr(self.tensor, name)(dim=axes, keepdim=keepdims, **more)
        if initial is not None:
            result = result.clamp(**{"min" if name == "amax" else "max": initial})
        return self._wrap(result)

    return reduced


class DeviceArray(NDArrayOperatorsMixin):
    """A tensor with the interface of an array; methods and attributes are those of NumPy's."""

    def __init__(self, tensor: Any, device: Device) -> None:
        self.tensor, self.device = tensor, device

    # --------------------------------------------------------------------------- protocols

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        host: NDArray[Any] = self.tensor.cpu().numpy()
        self.device.moved += host.nbytes
        return host if dtype is None else host.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        if on_device := METHODS.get((ufunc.__name__, method)):
            return on_device(self, *inputs, **named)
        (out,) = named.pop("out", (None,))
        arrays = [values for values in (*inputs, out) if _is_array(values)]
        apply = UFUNCS.get(ufunc.__name__, getattr(torch, ufunc.__name__, None))
        typed = all(array.dtype in DTYPES for array in arrays)
        if method != "__call__" or named or apply is None or not typed:
            return self._by_numpy(getattr(ufunc, method), inputs, named)
        *dtypes, last = ufunc.resolve_dtypes((*map(_kind, inputs), None))
        result = apply(*map(self._tensor, inputs, dtypes)).to(DTYPES[last])
        if out is None:
            return self._wrap(result)
        if not isinstance(out, DeviceArray):
            out[...] = np.asarray(self._wrap(result))
            return out
        out.tensor.copy_(result)
        return out

    def __array_function__(self, function: Call, _: Any, args: Any, named: Any) -> Any:
        on_device = FUNCTIONS.get(function.__name__)
        result = NotImplemented if on_device is None else on_device(self, *args, **named)
        return self._by_numpy(function, args, named) if result is NotImplemented else result

    def _by_numpy(self, function: Call, args: Any, named: Any) -> Any:
        """Call a function of NumPy on copies, and return its arrays to the device."""
        result = function(*_host(args), **_host(named))
        if isinstance(result, tuple | list):
            return type(result)(map(self._wrap_host, result))
        return self._wrap_host(result)

    def _wrap_host(self, value: Any) -> Any:
        return self.device.array(value) if isinstance(value, np.ndarray) else value

    def _wrap(self, tensor: Any) -> DeviceArray:
        return DeviceArray(tensor, self.device)

    def _tensor(self, values: Any, dtype: Any = None) -> Any:
        """Return an array or number as a tensor on the device."""
        dtype = None if dtype is None else DTYPES[dtype]
        if not _is_array(values) and not isinstance(values, np.generic):
            return torch.tensor(values, dtype=dtype, device=self.tensor.device)
        return self.device.array(values).tensor.to(dtype)

    def _index(self, key: Any) -> tuple[Any, list[int]]:
        """Return an index in torch's terms, and the axes to flip before."""
        parts, flipped, axis = [], [], 0
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, slice) and part.step == -1:
                flipped.append(axis)
                part = slice(None)
            parts.append(self._tensor(part) if _is_array(part) else part)
            axis += part is not None
        return tuple(parts), flipped

    def __getitem__(self, key: Any) -> DeviceArray:
        parts, flipped = self._index(key)
        return self._wrap((self.tensor.flip(flipped) if flipped else self.tensor)[parts])

    def __setitem__(self, key: Any, values: Any) -> None:
        self.tensor[self._index(key)[0]] = self._tensor(values, self.dtype)

    # --------------------------------------------------------------------------- attributes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY_DTYPES[self.tensor.dtype]

    @property
    def ndim(self) -> int:
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        return int(self.tensor.numel())

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[DeviceArray]:
        return map(self._wrap, self.tensor)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def item(self) -> Any:
        self.device.moved += self.tensor.element_size()
        return self.tensor.item()

    def __getattr__(self, name: str) -> Any:
        """Return a method or an attribute of NumPy's, of a copy."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(np.asarray(self), name)
        if not callable(value):
            return self._wrap_host(value)
        return lambda *args, **named: self._by_numpy(value, args, named)

    # --------------------------------------------------------------------------- methods

    def reshape(self, *shape: Any) -> DeviceArray:
        return self._wrap(self.tensor.reshape(*shape))

    def swapaxes(self, one: int, two: int) -> DeviceArray:
        return self._wrap(self.tensor.swapaxes(one, two))

    def copy(self) -> DeviceArray:
        return self._wrap(self.tensor.clone())

    def astype(self, dtype: DTypeLike) -> Any:
        kind = DTYPES.get(np.dtype(dtype))
        return self._wrap(self.tensor.to(kind)) if kind else np.asarray(self).astype(dtype)

    def take(self, indices: Any, axis: int | None = None) -> DeviceArray:
        flat = self.tensor.reshape(-1) if axis is None else self.tensor.movedim(axis, 0)
        taken = flat[self._tensor(indices)]
        return self._wrap(taken if axis in (None, 0) else taken.movedim(0, axis))

    def nonzero(self) -> tuple[DeviceArray, ...]:
        return tuple(map(self._wrap, self.tensor.nonzero(as_tuple=True)))

    def argmax(self, axis: int) -> DeviceArray:
        return self._wrap(self.tensor.to(torch.float64).argmax(dim=axis))

    any, all, mean, sum, max, min = map(_reduction, ("any", "all", "mean", "sum", "amax", "amin"))


def _is_array(values: Any) -> bool:
    return isinstance(values, np.ndarray | DeviceArray)


def _kind(values: Any) -> Any:
    """Return the dtype of values, or the type of a Python number, which adapts to others."""
    if hasattr(values, "dtype"):
        return values.dtype
    return np.dtype(bool) if isinstance(values, bool) else type(values)


def _host(values: Any) -> Any:
    """Replace the arrays of a device in arguments by NumPy's."""
    if isinstance(values, DeviceArray):
        return np.asarray(values)
    if isinstance(values, tuple | list):
        return type(values)(map(_host, values))
    if isinstance(values, dict):
        return {name: _host(value) for name, value in values.items()}
    return values


# ------------------------------------------------------------------------------- functions


def _bit_count(values: Any) -> Any:
    """Count the bits of non-negative integers below 2³²."""
    return sum(((values >> bit) & 1) for bit in range(32))


UFUNCS: dict[str, Call] = {
    "equal": torch.eq,
    "invert": torch.bitwise_not,
    "power": torch.pow,
    "rint": torch.round,
    "bitwise_count": _bit_count,
}
"""Those that torch has under another name, or not at all."""


def _at(reduce: str) -> Call:
    """Return a ufunc's method ``at``."""

    def at(like: DeviceArray, array: DeviceArray, index: Any, values: Any) -> None:
        target = array.tensor
        places = torch.arange(target.numel(), device=target.device).reshape(target.shape)
        where = places[array._index(index)[0]]
        added = like._tensor(values, array.dtype).expand(where.shape).reshape(-1)
        flat = target.reshape(-1)
        if target.dtype == torch.bool:
            flat, added = flat.to(torch.uint8), added.to(torch.uint8)
        target.copy_(flat.scatter_reduce(0, where.reshape(-1), added, reduce).reshape(target.shape))

    return at


METHODS: dict[tuple[str, str], Call] = {
    ("add", "at"): _at("sum"),
    ("maximum", "at"): _at("amax"),
    ("minimum", "at"): _at("amin"),
    ("logical_or", "at"): _at("amax"),
    ("maximum", "accumulate"): lambda like, array, axis=0: like._wrap(
        array.tensor.cummax(dim=axis).values
    ),
}
"""Methods of ufuncs that run on the device."""


def _common(like: DeviceArray, *values: Any) -> list[Any]:
    """Return values as tensors of the dtype that NumPy would give them together."""
    dtype = np.result_type(*(getattr(array, "dtype", array) for array in values))
    return [like._tensor(array, dtype) for array in values]


def _joined(apply: Call) -> Call:
    """Return a function that joins arrays along an axis, by torch's."""

    def join(like: DeviceArray, arrays: Any, axis: int = 0) -> Any:
        return like._wrap(apply(_common(like, *arrays), dim=axis))

    return join


def _take_along_axis(like: DeviceArray, array: Any, indices: Any, axis: int) -> Any:
    values, where = like._tensor(array), like._tensor(indices)
    where = where.where(where >= 0, where + values.shape[axis])
    return like._wrap(values.take_along_dim(where, dim=axis))


def _put_along_axis(like: DeviceArray, array: Any, indices: Any, values: Any, axis: int) -> Any:
    if not isinstance(array, DeviceArray):
        return NotImplemented
    where = like._tensor(indices)
    array.tensor.scatter_(axis, where, like._tensor(values, array.dtype).expand(where.shape))
    return None


def _sort(like: DeviceArray, array: Any, axis: int = -1) -> Any:
    return like._wrap(like._tensor(array).sort(dim=axis).values)


def _cumsum(like: DeviceArray, array: Any, axis: int | None = None) -> Any:
    values = like._tensor(array)
    return like._wrap((values.reshape(-1) if axis is None else values).cumsum(dim=axis or 0))


def _pad(like: DeviceArray, array: Any, widths: Any, constant_values: float = 0) -> Any:
    flat = [n for width in reversed(widths) for n in width]
    return like._wrap(functional.pad(like._tensor(array), flat, value=constant_values))


def _full_like(
    like: DeviceArray, array: Any, value: Any, dtype: DTypeLike | None = None, shape: Any = None
) -> Any:
    kind = None if dtype is None else DTYPES[np.dtype(dtype)]
    tensor = like._tensor(array)
    return like._wrap(tensor.new_full(tensor.shape if shape is None else shape, value, dtype=kind))


def _as(apply: Call) -> Call:
    """Return torch's function that takes the same arguments as NumPy's."""

    def call(like: DeviceArray, *values: Any, **named: Any) -> Any:
        tensors = (like._tensor(value) if _is_array(value) else value for value in values)
        return like._wrap(apply(*tensors, **named))

    return call


FUNCTIONS: dict[str, Call] = {
    "where": lambda like, condition, *values: like._wrap(
        torch.where(like._tensor(condition), *_common(like, *values))
    ),
    "concatenate": _joined(torch.cat),
    "stack": _joined(torch.stack),
    "take_along_axis": _take_along_axis,
    "put_along_axis": _put_along_axis,
    "sort": _sort,
    "argsort": lambda like, array, axis=-1, kind=None: like._wrap(
        like._tensor(array).to(torch.float64).argsort(dim=axis, stable=True)
    ),
    "partition": lambda like, array, kth, axis=-1: _sort(like, array, axis),
    "cumsum": _cumsum,
    "repeat": _as(torch.repeat_interleave),
    "broadcast_to": _as(torch.broadcast_to),
    "pad": _pad,
    "full_like": _full_like,
    "zeros_like": lambda like, array, *how, **named: _full_like(like, array, 0, *how, **named),
    "ones_like": lambda like, array, *how, **named: _full_like(like, array, 1, *how, **named),
    "norm": _as(torch.linalg.vector_norm),
    "einsum": _as(torch.einsum),
    "clip": _as(torch.clip),
    "isin": lambda like, array, values: like._wrap(torch.isin(*map(like._tensor, (array, values)))),
    "nonzero": lambda like, array: array.nonzero(),
    "count_nonzero": lambda like, array: int(array.tensor.count_nonzero()),
    "moveaxis": _as(torch.moveaxis),
}
"""NumPy's functions that run on the device."""
