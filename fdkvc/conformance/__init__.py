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

from fdkvc.conformance.checks import Fault as Fault
from fdkvc.conformance.checks import NothingEvicted as NothingEvicted
from fdkvc.conformance.checks import checks as checks
from fdkvc.conformance.subject import EvictionCache as EvictionCache
from fdkvc.conformance.subject import FullModel as FullModel
from fdkvc.conformance.subject import Reading as Reading
from fdkvc.conformance.subject import Restored as Restored
from fdkvc.conformance.subject import Subject as Subject
from fdkvc.conformance.subject import Turn as Turn
