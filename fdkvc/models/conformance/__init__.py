"""Conformance checks for any KV cache that evicts.

A cache is adapted by two methods; see `fdkvc.models.conformance.subject`. The guide beside this
file has a test file for a cache of your own.
"""

from fdkvc.models.conformance.checks import Fault as Fault
from fdkvc.models.conformance.checks import NothingEvicted as NothingEvicted
from fdkvc.models.conformance.checks import checks as checks
from fdkvc.models.conformance.subject import EvictionCache as EvictionCache
from fdkvc.models.conformance.subject import FullModel as FullModel
from fdkvc.models.conformance.subject import Reading as Reading
from fdkvc.models.conformance.subject import Restored as Restored
from fdkvc.models.conformance.subject import Subject as Subject
from fdkvc.models.conformance.subject import Turn as Turn
