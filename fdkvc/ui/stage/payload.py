"""Runs packed for the browser, once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from fdkvc.stage.payload import Asked as Asked
from fdkvc.stage.payload import LaneHead as LaneHead
from fdkvc.stage.payload import Said as Said
from fdkvc.stage.payload import pack, pack_lanes
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.runs import Run


@cached
def name_of(run: Run) -> str:
    """Return a unique name of this run, which ties messages to it."""
    return uuid4().hex


def name_of_all(runs: Sequence[Run]) -> str:
    """Return a unique name of these runs together."""
    return " ".join(map(name_of, runs))


@cached
def payload(run: Run) -> bytes:
    """Return a run packed for the browser."""
    return pack(run, name_of(run))


@cached
def lanes_payload(runs: tuple[Run, ...], heads: tuple[LaneHead, ...], said: Said | None) -> bytes:
    """Return runs over one dialog packed for the browser."""
    return pack_lanes(runs, heads, said, name_of_all(runs))
