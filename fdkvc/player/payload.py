"""A recorded run packed into few bytes, with all that the browser needs to show every turn.

The format: the length of a JSON header in four bytes, the header, and the columns. Of each column
the first bytes of all values come first, then the second ones, and so on; tokens are differences
from the previous one. Similar bytes are then adjacent, which deflate compresses well.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.charts.theme import FD_KVC, TOPICLESS, TOPICS, letter_ink, looks
from fdkvc.charts.timeline import Line
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.explain.course import no_history, term_courses
from fdkvc.explain.decisions import turn_view
from fdkvc.explain.narrate import headline, headline_of_several
from fdkvc.explain.tables import topic_changes
from fdkvc.player.run import ChosenDialog, StageRun

RULE_BIT, PROTECTED_BIT = 3, 5
"""The first bit of the rule and of the protection in a flag; the status has the bits below."""


def pack(
    run: StageRun,
    name: str,
    shows: str = "",
    ghost: StageRun | None = None,
    ghost_name: str = "",
) -> bytes:
    """Return a run for the browser, with all that any turn shows; `name` identifies it.

    `shows` names the panels of the stage; empty for all. A `ghost` is a run that is drawn behind
    it, with the name `ghost_name`; its turns are about the same topics.
    """
    trace = run.trace
    dialogs = run.dialogs
    headlines = [headline(trace, run.titled, 0, turn) for turn in range(dialogs.turns)]
    lanes = [_lane(run)]
    columns = _columns(run.entries, run.terms)
    head: dict[str, Any] = {"shows": shows, "before": ghost_name}
    if ghost is not None:
        lanes.append({**_course(ghost), "terms": [], "lines": _all_lines(ghost)})
        columns += _columns(ghost.entries, ())
        # Alike: the same entries, so decisions are compared. Scaled: scores have the same scale.
        scaled = type(trace.policy.core) is type(ghost.trace.policy.core)
        head |= {"alike": run.dialog == ghost.dialog, "scaled": scaled}
        if head["alike"]:
            for turn, words in enumerate(headlines):
                unshared = "{} of the {} kept".format(*_only(run, ghost, turn))
                headlines[turn] = f"{words[:-1]}; the {ghost_name} lacks {unshared}."
    return _packed("one", run, name, lanes, columns, {**head, "headlines": headlines})


def _only(run: StageRun, ghost: StageRun, turn: int) -> tuple[int, int]:
    """Return how many entries a turn keeps that another run's does not, and how many it keeps."""
    token = run.trace.kept_tokens[0, turn]
    token = token[token >= 0]
    unshared = ~np.isin(token, ghost.trace.kept_tokens[0, turn])
    return int(unshared.sum()), len(token)


@dataclass(frozen=True)
class LaneHead:
    """What a lane shows beside its entries."""

    label: str
    """Its name."""
    places: int
    """The height of its river, in entries."""
    note: str
    """A note on that height."""
    figures: tuple[tuple[str, tuple[str, ...]], ...]
    """Names of figures with their words in every turn."""


@dataclass(frozen=True, eq=False)
class DialogText:
    """The text of a dialog."""

    speakers: tuple[str, ...]
    """Of each turn."""
    turns: tuple[tuple[str, tuple[int, ...]], ...]
    """Each turn's text with its `Recording.piece_lengths`."""
    needed_tokens: tuple[int, ...]
    """Tokens that a `source` needs later."""
    source: str
    """What needs them, such as a service call."""
    underlined: int
    """The lane whose words are underlined at first."""
    demands: Sequence[Mapping[str, Any]]
    """Each has its turn, its source and its values; a value has the first token of its last
    mention, and words on every lane, empty where the lane held it."""


def pack_lanes(
    runs: Sequence[StageRun], heads: Sequence[LaneHead], text: DialogText | None, name: str
) -> bytes:
    """Return runs over one dialog for the browser: what each turn keeps and evicts, with ranks."""
    lanes = []
    all_looks = looks([head.label for head in heads])
    for run, head, look in zip(runs, heads, all_looks, strict=True):
        hue = {"tint": look.place, "shape": look.shape, "hued": head.label.startswith(FD_KVC)}
        lines = [] if text else _lines(run.turns, run.metrics)
        lanes.append({**_course(run), **asdict(head), **hue, "terms": [], "lines": lines})
    columns: list[NDArray[Any]] = []
    for run in runs:
        columns += _stays(run.trace) if run.long else _columns(run.entries, ())
    dialogs = runs[0].titled
    traces = [run.trace for run in runs]
    headlines = [
        headline_of_several(traces, dialogs, 0, turn) for turn in range(dialogs.turns)
    ]
    if text:
        parts = {"headlines": headlines, "text": vars(text)}
        return _packed("transcript", runs[0], name, lanes, columns, parts)
    return _packed("lanes", runs[0], name, lanes, columns, {"headlines": headlines})


def _packed(
    kind: str,
    run: StageRun,
    name: str,
    lanes: Sequence[Mapping[str, Any]],
    columns: Sequence[NDArray[Any]],
    head: Mapping[str, Any],
) -> bytes:
    sizes = [[column.dtype.str[1:], len(column)] for column in columns]
    head = {
        **head,
        "kind": kind,
        "name": name,
        "dialog": _dialog(run.dialogs, run.dialog),
        "lanes": lanes,
        "palette": [[colour, letter_ink(colour)] for colour in TOPICS],
        "topicless": [TOPICLESS, letter_ink(TOPICLESS)],
        "columns": sizes,
    }
    header = json.dumps(head, separators=(",", ":")).encode()
    parts = [len(header).to_bytes(4, "little"), header, *map(_planes, columns)]
    return zlib.compress(b"".join(parts), 6)


def _dialog(dialogs: DialogBatch, choice: ChosenDialog) -> Mapping[str, Any]:
    bits = dialogs.topic_bits[0, : int(dialogs.bounds[0, -1])]
    # Topic names are made for one token of each pattern of bits, as there are many tokens.
    _, examples, pattern = np.unique(bits, return_index=True, return_inverse=True)
    topics, order = np.unique(dialogs.topics_of(0, examples), return_inverse=True)
    topic_of = order[pattern]  # each token's place in `topics`
    recording = choice.recording
    mentioned: dict[tuple[int, ...], str] = {}  # the value of each mention, by its tokens
    for demand, mentions in recording.evidence if recording else ():
        mentioned |= dict.fromkeys(mentions, demand.value)
    value_of = recording.value_of if recording else {}
    return {
        "topics": [*dialogs.topic_names, dialogs.topic_label(-1)],
        "titles": choice.topic_names if choice.topic_names != dialogs.topic_names else (),
        "current": dialogs.current[0].tolist(),
        "bounds": dialogs.bounds[0].tolist(),
        "changes": topic_changes(dialogs)["turn"].tolist(),
        "names": topics.tolist(),
        "named": topic_of.tolist() if len(topics) > len(dialogs.topic_names) else None,
        "words": list(choice.words),
        # Longer mentions come last: in the browser, the last one that has a token counts.
        "values": [(mentioned[tokens], tokens) for tokens in sorted(mentioned, key=len)],
        "needed": [(token, value) for token, (value, _) in value_of.items()],
        "spans": recording.spans if recording else (),
    }


def _course(run: StageRun) -> Mapping[str, Any]:
    trace = run.trace
    turns = range(run.dialogs.turns)
    deciding = list(run.deciding.items())
    course = {"label": trace.policy.label, "long": run.long, "deciding": deciding}
    if run.long:  # the browser derives its turns from the stays of tokens
        constant = {"budgets": [trace.budget] * len(turns), "pages": [1] * len(turns)}
        return {**course, **constant, "counts": [], "cutoffs": [], "digits": []}
    rows = []
    for turn in turns:
        view = turn_view(trace, run.dialogs, 0, turn)
        rows.append((view.places, max(view.policy.page_size, 1), view.cutoff, view.digits))
    budgets, pages, cutoffs, digits = zip(*rows, strict=True)
    counts = np.bincount(run.entries["turn"], minlength=len(turns))
    return {
        **course,
        "budgets": budgets,
        "pages": pages,
        "counts": counts.tolist(),
        "cutoffs": cutoffs,
        "digits": digits,
    }


def _lane(run: StageRun) -> Mapping[str, Any]:
    courses = term_courses(run.trace)
    name = run.policy.quantity_name
    terms = []
    for course in courses:
        shares = []
        for step, share in course.shares.items():
            shares.append({"name": step, "values": share.tolist()})
        term = {
            "name": name(course.term),
            "remembers": course.remembers,
            "gained": course.gained,
        }
        terms.append({**term, "shares": shares})
    origin = no_history(run.trace, courses)
    return {**_course(run), "terms": terms, "lines": _all_lines(run), "origin": origin}


def _all_lines(run: StageRun) -> list[Mapping[str, Any]]:
    return _lines(run.turns, (*run.metrics, *run.states))


def _lines(turns: pd.DataFrame, lines: Sequence[Line]) -> list[Mapping[str, Any]]:
    """Return lines with their values in each turn."""
    packed_lines: list[Mapping[str, Any]] = []
    for line in lines:
        numbers = turns[line.field].tolist()
        values = [None if isnan(x) else x for x in numbers]
        packed_lines.append({**vars(line), "values": values})
    return packed_lines


def _columns(entries: pd.DataFrame, terms: Sequence[str]) -> list[NDArray[Any]]:
    """Return columns of all turns: tokens, flags, scores and, if there are several, each term."""
    statuses = {status.name: status.value for status in Status}
    rules = {rule.name: rule.value for rule in Rule}
    flags = entries["status"].map(statuses).to_numpy(np.uint8)
    rule = entries["rule"].map(rules).fillna(0)
    flags = flags | rule.to_numpy(np.uint8) << RULE_BIT
    flags |= entries["protected"].to_numpy(np.uint8) << PROTECTED_BIT
    # A negative difference wraps around, as does the sum in the browser.
    tokens = entries["token"].to_numpy(np.int64)
    token = np.diff(tokens, prepend=0).astype(np.uint32)
    parts = terms if len(terms) > 1 else ()  # a single term is the score
    numbers = [entries[name].to_numpy(np.float32) for name in ("score", *parts)]
    return [token, flags.astype(np.uint8), *numbers]


def _stays(trace: Trace) -> list[NDArray[Any]]:
    """Return each stay of a token in the cache: the token, its first turn, and the turn after.

    The stays are in the order of their ends and then of their tokens.
    """
    # Of each token: whether it is in the cache, and since which turn.
    is_cached = np.zeros(1 + int(trace.kept_tokens.max(initial=0)), np.bool_)
    first_turn = np.zeros(len(is_cached), np.uint32)
    stays: list[NDArray[Any]] = []
    for turn in range(trace.turns + 1):
        is_cached_now = np.zeros_like(is_cached)
        if turn < trace.turns:
            token = trace.kept_tokens[0, turn]
            is_cached_now[token[token >= 0]] = True
        # After the last turn, all that remain.
        evicted = np.flatnonzero(is_cached & ~is_cached_now)
        end_turn = np.full(len(evicted), turn)
        stays.append(np.stack([evicted, first_turn[evicted], end_turn]))
        first_turn[is_cached_now & ~is_cached] = turn
        is_cached = is_cached_now
    token, first, end = np.concatenate(stays, axis=1).astype(np.int64)
    columns = np.diff(token, prepend=0), first, end
    return [column.astype(np.uint32) for column in columns]


def _planes(column: NDArray[Any]) -> bytes:
    """Return the bytes of a column, the first of every value before the second of any."""
    little = np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.itemsize).T.tobytes()  # (bytes, values)
