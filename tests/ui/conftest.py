"""Pages with little work in the background of every card: few policies, no pretrained model."""

import pytest

from fdkvc.models.numpy import gguf_file
from fdkvc.verdict import plan
from fdkvc.verdict.page import verdict


@pytest.fixture(autouse=True)
def without_smollm2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package of SmolLM2, but from tests of it."""
    if request.node.get_closest_marker("smollm2") is None:
        monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare three policies on every file that is opened, which begins by itself."""
    few = ("sinks(weighted-recency)", "reread(messages(fifo))", "fifo")
    for module in (plan, verdict):
        monkeypatch.setattr(module, "CANDIDATES", few)
