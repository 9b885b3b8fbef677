"""Several runs over one dialog as lanes of one stage."""

from collections.abc import Mapping, Sequence
from typing import Any

from fdkvc.run.metrics import default_metrics
from fdkvc.stage.moments import why_sentences
from fdkvc.stage.payload import DialogText, LaneHead
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.stage.component import draw, lanes_payload, name_of_all
from fdkvc.ui.stage.follow import follow, stage_view


def show_lanes(page: str, lanes: Sequence[Lane], text: DialogText | None = None) -> None:
    """Show each run's river and cache, a fork beside its parent.

    With a `text`, show the transcript, with a line under each word for every run that holds it.
    """
    view = stage_view(page)
    view["text"] = text
    draw(page, shown(view, lanes))


def shown(view: Mapping[str, Any], lanes: Sequence[Lane]) -> bytes:
    """Return what the stage of a page shows, by `stage_view`: its runs packed."""
    rows = beside(lanes)
    return lanes_payload(tuple(lane.run for lane in rows), heads(rows), view.get("text"))


def follow_lanes(page: str, lanes: Sequence[Lane], text: DialogText | None = None) -> int:
    """Follow the stage, and send it the explanation of its entry in each lane.

    With a `text`, of a piece of a value that is needed later, that of the value.
    """
    rows = beside(lanes)

    def explain(turn: int, token: int) -> list[str]:
        mentions = text.mentions(token) if text else ()
        return [" ".join(why_sentences(lane.run, turn, token, mentions)) for lane in rows]

    return follow(page, name_of_all([lane.run for lane in rows]), rows[0].run.dialogs, explain)


def beside(lanes: Sequence[Lane]) -> list[Lane]:
    """Put a fork beside its parent."""
    return [
        row
        for lane in lanes
        if not lane.origin
        for row in (lane, *(fork for fork in lanes if fork.origin == lane.name))
    ]


def heads(rows: Sequence[Lane]) -> tuple[LaneHead, ...]:
    """Return the labels and figures of each lane.

    The river of a policy with a budget is as high as the largest budget.
    """
    names = [lane.name for lane in rows]
    traces = [lane.run.trace for lane in rows]
    largest = max((trace.budget for trace in traces if trace.policy.bounded), default=0)
    return tuple(
        LaneHead(
            lane.label,
            largest if trace.policy.bounded else trace.budget,
            "" if trace.policy.bounded else "on its own scale",
            tuple(
                (line.label, tuple(map(line.words, lane.run.turns[line.field])))
                for line in lane.run.metrics
                if line.field in default_metrics()
            ),
            (names.index(lane.origin), lane.begins) if lane.origin else None,
        )
        for lane, trace in zip(rows, traces, strict=True)
    )
