"""How all tests run: Hypothesis takes the same examples every time, and timing is brief.

`pytest --hypothesis-profile=explore` looks for new counterexamples.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import settings

from fdkvc.measured import benchmark, study

settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("fast")


@pytest.fixture(scope="session", autouse=True)
def brief_timing() -> Iterator[None]:
    """Time every policy in one round, and few dialogs: no test looks at how long anything took."""
    one_round = partial(benchmark.measure_latency, repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        for module in (benchmark, study):
            patch.setattr(module, "measure_latency", one_round)
        patch.setattr(study, "DIALOGS", 10)
        yield
