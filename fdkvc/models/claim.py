"""``claim``: compare a policy in a file of your own with the leading ways, in a language model."""

import importlib.util
import random
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import pandas as pd

from fdkvc.conversations.sources import Sources
from fdkvc.core.parameters import check_count
from fdkvc.core.statistics import over_clusters
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count, error_reason
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.models.answers import Answers, is_large, run_answers
from fdkvc.models.loaded import NamedModel
from fdkvc.models.results import readable_dialogs
from fdkvc.policies import WRAPPERS, Policy, policy_named, read_policy, register, wrapped
from fdkvc.runs.console import print_results, running, warn_each
from fdkvc.runs.grid import Grid, figures
from fdkvc.runs.options import settings_from
from fdkvc.runs.workers import cores
from fdkvc.runs.write import write_files

LEADING = (
    "sinks(weighted-recency)",
    "sinks(turns(h2o))",
    "sinks(surprisal)",
    "sinks(h2o)",
    "sink",
    "sinks(random)",
)
"""The ways with which a claim is compared: the best by text and by attention, and the simplest."""

MEASURES = ("kl", "values_right_of_full")
SEED = 1
"""The seed with which dialogs are drawn."""


def claim(options: Namespace) -> None:
    """Compare the policy of a file with the leading ways."""
    check_count("count", options.count)
    file = Path(options.file)
    # Registered, as runs look policies up by their names.
    policy = policy_named(register(policy_in(file)).key)
    # Also with the first tokens kept, as the leading ways have it: pretrained models need them.
    claimed_ways = (policy, wrapped("sinks", policy))
    settings = Answers(
        (*claimed_ways, *map(read_policy, LEADING)), (options.budget,), decides=options.decides
    )
    model = NamedModel(options.model).answering_model
    warn_each([model.tokens.note])
    dialogs, _ = readable_dialogs(model, settings_from(Sources, options))
    read = drawn(dialogs, options.count)
    # Threads alone: the policy's file is no module that another process could import.
    threads = cores() if is_large(model) else 1
    with running(threads) as execution, _named_errors(file):
        rows = run_answers(settings, model, read, **execution)
    table = against([policy_way.name for policy_way in claimed_ways], rows)
    if options.out is not None:
        out_file = Path(options.out)
        write_files(out_file.parent, {out_file.name: table.to_csv(index=False).encode()})
    clusters = int(rows.services.nunique())
    heading = (
        f"{model.name}: {len(read)} of {count(len(dialogs), 'dialog')}, {options.budget} entries, "
        f"decided by {options.decides}; 95 % intervals are {over_clusters(clusters)}."
    )
    print_results("\n\n".join([heading, *texts(table)]), options.out)


def policy_in(file: Path) -> type[Policy]:
    """Run a Python file and return the one policy that it defines.

    Raises a ValueError if the file cannot be run, or defines another number of policies.
    """
    spec = importlib.util.spec_from_file_location(f"claim_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file.name} is not a Python file: name one that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the module of a class
    try:
        spec.loader.exec_module(module)
    except (OSError, KeyboardInterrupt):  # no such file, for example: the command says why
        raise
    except BaseException as error:  # the file may raise anything, and end the process
        raise ValueError(f"{file.name} cannot be run, {_described(error)}") from None
    wrappers = tuple(WRAPPERS.values())
    # The classes that the file defines itself: it imports others.
    policies = list[type[Policy]]()
    for value in vars(module).values():
        own_class = isinstance(value, type) and value.__module__ == spec.name
        if own_class and issubclass(value, Policy) and not issubclass(value, wrappers):
            policies.append(value)
    if len(policies) != 1:
        names = ", ".join(policy.__name__ for policy in policies) or "none"
        raise ValueError(
            f"{file.name} must define one class derived from Policy, but has {names}"
        )
    (policy,) = policies
    if "key" not in vars(policy):
        raise ValueError(
            f'{policy.__name__} in {file.name} needs a key: its name, as key = "mine"'
        )
    return policy


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    """Turn an error that a policy's methods raise into a ValueError that names file and line."""
    try:
        yield
    # These have a sentence of their own.
    except (ValueError, OSError, MemoryError):
        raise
    except Exception as error:
        path = file.resolve()
        # The last place in the file is where it fails, also if the error comes from a library.
        for frame in reversed(extract_tb(error.__traceback__)):
            if Path(frame.filename).resolve() == path:
                message = f"{file.name} fails in line {frame.lineno}, {_described(error)}"
                raise ValueError(message) from None
        raise


def _described(error: BaseException) -> str:
    kind = type(error).__name__
    reason = error_reason(error)
    return kind if reason == kind else f"{kind}: {reason}"


def drawn(dialogs: Sequence[Transcript], max_count: int) -> list[Transcript]:
    """Return at most `max_count` dialogs, drawn by a fixed seed; only with calls if any have."""
    calling = [dialog for dialog in dialogs if dialog.calls] or [*dialogs]
    return random.Random(SEED).sample(calling, min(max_count, len(calling)))


def against(claimed_ways: Sequence[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Return how each way of a claim differs from each leading way.

    Columns way, metric, own (its mean), other, mean (the other's), and those of
    `paired_differences`, of which the difference is the claim's minus the other's.
    """
    rows = rows[rows.metric.isin(MEASURES)]
    means = mean_table(rows).set_index(["policy", "metric"])["mean"]
    tables = []
    for leading_way in LEADING:
        compared = rows[rows.policy.isin([*claimed_ways, leading_way])]
        tables.append(paired_differences(compared, leading_way))
    table = pd.concat(tables, ignore_index=True)
    for column, names in (("own", table.policy), ("other", table.baseline)):
        pairs = pd.MultiIndex.from_arrays([names, table.metric])
        table[column] = means.loc[pairs].to_numpy()
    table = table.sort_values(
        ["policy", "metric"],
        key=lambda names: names.map([*claimed_ways, *MEASURES].index),
        kind="stable",
    )
    columns = ["policy", "metric", "own", "baseline", "other", "n", "services"]
    return table[[*columns, "mean_diff", "ci_low", "ci_high", "p", "verdict", "more_clusters"]]


def texts(table: pd.DataFrame) -> list[str]:
    """Return a text with a table for each way of a claim and each metric."""
    parts = []
    for (policy_name, key), part in table.groupby(["policy", "metric"], sort=False):
        metric = late_metric(str(key))
        figure_columns = ("mean_diff", "ci_low", "ci_high")
        needed_clusters = part.more_clusters.where(part.verdict == "open")
        columns = {
            "against": part.baseline.tolist(),
            "its mean": [*map(metric.figure, part.other)],
            "yours − its": figures(part, figure_columns, signs=True),
            "yours is": part.verdict.tolist(),
            "open: clusters more": needed_clusters.astype("string").fillna("–").tolist(),
        }
        heading = (
            f"{policy_name}, {metric.heading(str(key))}: {metric.figure(part.own.iloc[0])}"
        )
        parts.append(f"{heading}\n{Grid.of(columns).text()}")
    return parts
