"""Pages with little work in the background of every card: few policies, no pretrained model."""

from collections.abc import Iterator
from concurrent.futures import wait

import pytest

from fdkvc.models.numpy import gguf_file
from fdkvc.ui.run_panel import shared_jobs
from fdkvc.verdict import card as card_module


@pytest.fixture(autouse=True)
def without_smollm2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package of SmolLM2, but from tests of it."""
    if request.node.get_closest_marker("smollm2") is None:
        monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare three policies on every file that is opened, which begins by itself."""
    few = ("sinks(weighted-recency)", "reread(messages(fifo))", "h2o")
    monkeypatch.setattr(card_module, "CANDIDATES", few)


@pytest.fixture(autouse=True)
def no_work_left_behind() -> Iterator[None]:
    yield
    jobs = shared_jobs()._jobs
    left = [job for job in jobs.values() if not job.finished]
    for job in left:
        job.cancel()
        del jobs[job.name]  # another test of the same run would find it stopped
    wait([job.future for job in left])
