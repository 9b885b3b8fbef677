"""A hyperparameter that differs by row: many settings of a policy in one batch."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from fdkvc.core.parameters import parameters_of
from fdkvc.policies.base import Policy
from fdkvc.policies.wrapper import Wrapper


class ByRow(NDArrayOperatorsMixin):
    """One number for each row of a batch, used in place of a single number.

    Arithmetic is that of a Python number: in double precision with other numbers, and in the
    array's precision with an array, whose first axis is rows. So each row's result is, to the last
    bit, that of a run with this row's number alone.

    Examples
    --------
    >>> weight = ByRow([0.5, 0.25])
    >>> ((1 - weight) * np.ones((2, 3), np.float32)).tolist()
    [[0.5, 0.5, 0.5], [0.75, 0.75, 0.75]]
    """

    def __init__(self, values: Sequence[float]) -> None:
        self._values = np.asarray(values, float)
        self.was_read = False  # whether anything has computed with the numbers

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        """Return the numbers (B,)."""
        self.was_read = True
        return np.array(self._values, dtype)

    def __bool__(self) -> bool:
        # A policy that branches on a hyperparameter must not declare it by_row.
        raise TypeError("a number for each row is neither true nor false")

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """Apply a ufunc row by row, in the precision of the arrays."""
        self.was_read = True
        arrays = [value for value in inputs if isinstance(value, np.ndarray)]
        # A Python number has no precision of its own either.
        dtype = np.result_type(*arrays, 0.0)
        axes = max((array.ndim for array in arrays), default=1)

        def beside_arrays(value: Any) -> Any:
            if not isinstance(value, ByRow):
                return value
            shape = (-1, *[1] * (axes - 1))  # (B, 1, …), to broadcast over the other axes
            return value._values.astype(dtype).reshape(shape)

        result = getattr(ufunc, method)(*map(beside_arrays, inputs), **kwargs)
        return result if arrays else ByRow(result)


def by_row(policy: Policy, name: str, values: Sequence[float]) -> Policy:
    """Return a policy with a value of a hyperparameter for each row.

    The hyperparameter is declared `by_row`, and all values are in its range.
    """
    if isinstance(policy, Wrapper) and name not in parameters_of(policy):
        return replace(policy, policy=by_row(policy.policy, name, values))
    varied = copy.copy(policy.variant(**{name: values[0]}))
    # The check of a new instance would make it a plain number.
    object.__setattr__(varied, name, ByRow(values))
    return varied
