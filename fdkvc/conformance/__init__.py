"""Conformance: what every cache that evicts must hold to, as checks that anyone can run.

A cache is put through them by an adapter of two methods; see `fdkvc.conformance.subject`.

Examples
--------
A file of tests, for a cache of one's own::

    import pytest
    from fdkvc.conformance import Subject, checks

    MINE = Subject(begin=..., model=..., budget=24)

    @pytest.mark.parametrize("check", checks(MINE), ids=lambda check: check.__name__)
    def test_my_cache(check):
        check(MINE)
"""

from fdkvc.conformance.checks import Fault, NothingEvicted, checks
from fdkvc.conformance.subject import EvictionCache, FullModel, Reading, Subject, Turn

__all__ = [
    "EvictionCache",
    "Fault",
    "FullModel",
    "NothingEvicted",
    "Reading",
    "Subject",
    "Turn",
    "checks",
]
