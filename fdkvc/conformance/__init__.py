"""Conformance checks for any KV cache that evicts.

A cache is adapted by two methods; see `fdkvc.conformance.subject`.

Examples
--------
A test file for your own cache::

    import pytest
    from fdkvc.conformance import Subject, checks

    MINE = Subject(begin=..., model=..., budget=24)

    @pytest.mark.parametrize("check", checks(MINE), ids=lambda check: check.__name__)
    def test_my_cache(check):
        check(MINE)
"""

from fdkvc.conformance.checks import Fault, NothingEvicted, checks
from fdkvc.conformance.subject import EvictionCache, FullModel, Reading, Restored, Subject, Turn

__all__ = [
    "EvictionCache",
    "Fault",
    "FullModel",
    "NothingEvicted",
    "Reading",
    "Restored",
    "Subject",
    "Turn",
    "checks",
]
