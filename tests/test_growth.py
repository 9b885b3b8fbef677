"""Growth is told by a ratio of times: a slower or busier machine is no less right."""

from random import Random

import pytest

from tests.growth import LINEAR, growth


@pytest.mark.parametrize(("power", "linear"), [(1, True), (2, False)])
def test_work_that_grows_with_the_square_is_told_from_work_that_does_not(
    power: int, linear: bool
) -> None:
    """Also where a busy core makes any run take up to twice as long."""
    busy = Random(0)
    now = 0.0

    def work(count: int) -> None:
        nonlocal now
        now += count**power * busy.uniform(1, 2)

    for _ in range(50):
        assert (growth(work, int, 100, lambda: now) < LINEAR) is linear
