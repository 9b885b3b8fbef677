"""What the tests of live models share: no gradients, and a small model."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_gradients() -> Iterator[None]:
    import torch

    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def llama() -> Any:
    from tests.library import made

    return made()
