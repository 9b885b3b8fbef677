"""Conformance checks for any KV cache that evicts.

A cache is adapted by two methods; see `fdkvc.conformance.subject`. The guide beside this file has a
test file for a cache of your own.
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
