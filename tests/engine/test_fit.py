"""A whole text fitted into a budget at once."""

import pytest

from fdkvc.engine.fit import fit
from fdkvc.policies import read_policy
from tests.worlds import random_dialog


@pytest.mark.parametrize(
    "name", ["fifo", "h2o", "blocks(fifo)", "blocks(h2o)", "blocks(sink, size=3)"]
)
@pytest.mark.parametrize("budget", [48, 1000])
def test_where_all_fits_all_stays_also_the_page_that_is_not_full(name: str, budget: int) -> None:
    assert fit(read_policy(name), random_dialog(0, [9, 8, 10, 9, 8]), budget).all()


@pytest.mark.parametrize("name", ["blocks(fifo)", "blocks(h2o-mean)"])
def test_a_page_that_is_not_full_takes_the_places_of_a_full_one(name: str) -> None:
    # Pages of 16 places: two of the three fit.
    stays = fit(read_policy(name), random_dialog(0, [9, 8, 10, 9, 8]), 47)

    pages = [stays[first : first + 16] for first in (0, 16, 32)]
    assert sorted(bool(page.all()) for page in pages) == [False, True, True]
    assert sum(bool(page.any()) for page in pages) == 2
