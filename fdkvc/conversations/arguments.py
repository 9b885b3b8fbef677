"""Arguments of calls that were still cached in a replay, or not: recall by source, and losses.

The source of an argument is the kind of span that mentioned its value last: the system prompt, a
user, the assistant, an earlier call, or the result of a tool.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pandas as pd

from fdkvc.core.limits import MAX_TURNS
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.engine.evidence import AGES
from fdkvc.engine.summary import mean_by_cluster

ANY = "any"
"""In the columns of sources and ages: all of them together."""

AGE_LABELS = {age: f"{words} ago" for age, (words, _) in AGES.items()} | {ANY: "any age"}

SPANS = {age: span for age, (_, span) in AGES.items()} | {ANY: (0, MAX_TURNS)}
"""Ages and their turns: over the first, up to the last."""

SOURCE_LABELS: Mapping[str, str] = {
    **{str(kind): label for kind, label in SPAN_KINDS.items()},
    ANY: "any source",
}

DIALOG = ["dialog", "services"]
CALL = [*DIALOG, "turn", "call", "call_number"]
"""Columns that identify a dialog, and a call."""

CASE = ["policy", "budget"]
"""Columns that identify a run."""

MEAN = ("n", "services", "mean", "ci_low", "ci_high")
SOURCE_RECALL = (*CASE, "source", "age", "arguments", *MEAN)


def source_recall(arguments: pd.DataFrame) -> pd.DataFrame:
    """Return the recall of arguments by source and age, with 95 % intervals over clusters.

    A dialog's recall is the mean over calls of the share of their arguments that were held, as in
    `fdkvc.engine.evidence.recall`. `arguments` is a table of
    `fdkvc.conversations.replay.replay_arguments`. The result has columns `SOURCE_RECALL`, and no
    row where there is no argument.
    """
    # Group numbers instead of texts, and all cases at once: the grouping is repeated for each
    # source and age, and this makes it fast.
    numbers = arguments[["source", "age", "held"]].copy()
    for name, columns in (("case", CASE), ("dialog", DIALOG), ("call", CALL)):
        numbers[name] = arguments.groupby(columns, sort=False).ngroup()
    cases = [*arguments[CASE].drop_duplicates().itertuples(index=False, name=None)]
    services = arguments[DIALOG].drop_duplicates().services.tolist()
    rows: list[list[tuple[Any, ...]]] = [[] for _ in cases]
    for source in SOURCE_LABELS:
        of_source = numbers if source == ANY else numbers[numbers.source == source]
        for age, bounds in SPANS.items():
            is_in_span = of_source.age.between(*bounds, inclusive="right")
            for case, count, mean in _case_means(of_source[is_in_span], services):
                rows[case].append((*cases[case], source, age, count, *mean))
    return pd.DataFrame(chain(*rows), columns=list(SOURCE_RECALL))


def _case_means(
    numbers: pd.DataFrame, services: list[str]
) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Yield each case, its number of arguments, and their mean recall by clusters."""
    counts = numbers.case.value_counts()
    # The mean over a call's arguments, then over a dialog's calls, then over dialogs.
    calls = numbers.groupby(["case", "dialog", "call"], sort=False).held.mean()
    dialogs = calls.groupby(["case", "dialog"], sort=False).mean().reset_index("dialog")
    case: Any
    for case, of_case in dialogs.groupby("case", sort=False):
        clusters = [services[dialog] for dialog in of_case.dialog]
        mean = mean_by_cluster(of_case.held.to_numpy(), clusters, share=True)
        yield case, int(counts[case]), tuple(mean)


def age_of(age: int) -> str:
    """Return the key in `AGES` of an age in turns."""
    return next(key for key, (_, (low, high)) in AGES.items() if low < age <= high)


def forgotten(arguments: pd.DataFrame) -> pd.DataFrame:
    """Return the arguments that were no longer cached, oldest mention first."""
    lost = arguments[arguments.held < 1]
    in_order = lost.sort_values([*CASE, "age"], ascending=[True, True, False], kind="stable")
    return in_order.reset_index(drop=True)


def worst_losses(lost: pd.DataFrame, limit: int = 5) -> pd.DataFrame:
    """Return the values of `forgotten` that most calls needed, then those mentioned longest ago.

    Each has the row of the first call that lacked it, and the number of calls in the column
    `calls`.
    """
    value = ["dialog", "value"]
    lost = lost.assign(calls=lost.groupby(value).value.transform("size"))
    first = lost.sort_values("turn", kind="stable").drop_duplicates(value)
    return first.sort_values(["calls", "age"], ascending=False, kind="stable").head(limit)
