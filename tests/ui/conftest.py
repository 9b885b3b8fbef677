"""Pages without the pretrained model, which would read in the background of every verdict."""

import pytest

from fdkvc.models.numpy import gguf_file


@pytest.fixture(autouse=True)
def without_smollm2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package of SmolLM2, but from tests of it."""
    if request.node.get_closest_marker("smollm2") is None:
        monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
