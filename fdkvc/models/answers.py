"""Answers: what a language model loses where a policy evicts from its KV cache.

A dialog is read turn by turn under the full cache and, beside it, under every policy and budget;
each computes later tokens from the entries that it still holds. Measured are the likelihood of what
came next, words and arguments of calls, and whether the model would have written the same values
and the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, pairwise
from threading import Event, Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from fdkvc.conversations.replay import TRIED
from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.limits import MAX_CHUNK_NUMBERS
from fdkvc.core.parameters import BUDGET, check_count, option
from fdkvc.core.transcripts import SPAN_KINDS, Argument, Call, Transcript
from fdkvc.engine.evidence import AGES
from fdkvc.engine.metrics import metrics_of
from fdkvc.models.answer_causes import grade_call
from fdkvc.models.numpy.chat import generate_passages
from fdkvc.models.numpy.head_eviction import DECIDES, check_no_future
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.models.numpy.losses import losses
from fdkvc.models.numpy.model_text import SEPARATOR
from fdkvc.models.numpy.reread_cache import RereadCache
from fdkvc.models.numpy.text_cache import ModelCache, TextCache, read, read_each, reads_each
from fdkvc.models.numpy.tokens import EncodedPassage
from fdkvc.policies import PAPER_POLICIES, Policy, read_policy
from fdkvc.runs.jobs import (
    Execution,
    Progress,
    check_different,
    one_blas_thread,
    run_jobs,
    worker_count,
)
from fdkvc.runs.options import RUN_POLICIES
from fdkvc.runs.workers import DaemonThreads

if TYPE_CHECKING:  # a help takes the settings alone
    import pandas as pd

Result = TypeVar("Result")

FULL = "full"
"""The control that evicts nothing; the others are compared with it."""

CHUNK = 4
"""Dialogs of one job of a worker."""

LOGITS_AT_ONCE = 12
"""Tokens whose logits are in memory at once."""

LARGE_VOCABULARY = 2**14
"""From which on so many tokens are read at once that `MAX_CHUNK_NUMBERS` logits are in memory."""

WRITERS_AT_ONCE = 2
"""Copies of caches that write at once."""

EXTRA_TOKENS = 24
"""How much longer than the right call a written one may be."""

TOKENS_REREAD = "tokens_reread"
"""The metric of ways that read again, which is measured where one of them runs."""

MEASURED = ("dialog", "services", "policy", "budget", "metric", "value", "count")

Row = tuple[str, str, str, int, str, float, int]
"""A row of the table with columns `MEASURED`."""

GRADED = ("values_right", "calls_exact", "arguments_right")
"""Metrics of what is written, each also among those that the full cache gets right."""


@dataclass(frozen=True)
class Answers:
    """What to run on every dialog; refuses in one sentence what cannot be run."""

    policies: tuple[Policy, ...] = option(
        f"{RUN_POLICIES}, random, and reread(fifo), which reads the last tokens again",
        default=tuple(map(read_policy, (*PAPER_POLICIES, "random", "reread(fifo)"))),
    )
    """The full cache is always added."""
    budgets: tuple[int, ...] = option(TRIED, "N", default=(48, 96))
    """Entries that a KV head may hold after a turn."""
    decides: str = option(
        "head: each KV head evicts on its own; layer or model: all its heads together",
        "WHO",
        default=DECIDES.default,
    )
    every: int | None = option("evict also after every N generated tokens", "N", default=None)
    write_calls: bool = option("let the model also write each call, token by token", default=False)

    def __post_init__(self) -> None:
        for budget in self.budgets:
            BUDGET.check(budget, "budget")
        for policy in self.policies:
            check_no_future(policy)
        DECIDES.check(self.decides, "decides")
        if self.every is not None:
            check_count("every", self.every)
        if not (self.budgets and self.policies):
            raise ValueError("answers need at least one policy and one budget")
        check_different("policy", self.names)
        check_different("budget", list(map(str, self.budgets)))

    @property
    def names(self) -> list[str]:
        """The policies, the full cache first."""
        return [FULL, *(policy.name for policy in self.policies if policy.name != FULL)]

    def caches(self, model: AnyModel) -> dict[tuple[str, int], ModelCache]:
        """Return a new cache by policy and budget; first the full one, under the first budget."""
        caches: dict[tuple[str, int], ModelCache] = {(FULL, self.budgets[0]): model.full()}
        for policy, budget in self.cases:
            if policy.reads_again:
                caches[policy.name, budget] = RereadCache(model, policy, budget)
            elif policy.name != FULL:
                caches[policy.name, budget] = model.evicting(policy, budget, self.decides)
        return caches

    @property
    def cases(self) -> Iterable[tuple[Policy, int]]:
        """What runs beside the full cache: a policy and a budget each."""
        return [(policy, budget) for budget in self.budgets for policy in self.policies]


def run_answers(
    settings: Answers,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    **how: Unpack[Execution],
) -> pd.DataFrame:
    """Let a model read and answer dialogs under every policy and budget.

    Columns `MEASURED`: a row per dialog, policy, budget and measure that the dialog has a value of;
    `count` is the number of tokens, calls or arguments that it averages.

    A dialog's numbers depend neither on other dialogs nor on workers or chunks. Names of dialogs
    differ. Raises a ValueError if a dialog is longer than the model's context, or `workers` is
    below 1.
    """
    import pandas as pd

    workers, jobs = worker_count(how), jobs_of(model, transcripts)
    sizes = [[sum(work_of(settings, encode_dialog(model, row))) for row in job] for job in jobs]
    run = partial(run_job, settings, model)
    if how.get("executor") is None and (workers == 1 or is_large(model)):
        # Threads share a large model, and each passage is reported.
        threads: Any = None if workers == 1 else DaemonThreads(workers)
        how["executor"], report = threads, how.pop("on_progress", None)
        if report is not None:
            kept = how.get("finished")
            before = [] if kept is None else [*chain(*map(sizes.__getitem__, kept.results))]
            on_read = _reporting([*chain(*sizes)], before, report, how.get("cancelled"))
            run = partial(run, on_read=on_read)
    chunks = run_jobs(run, jobs, **how)
    return pd.DataFrame([*chain.from_iterable(chunks)], columns=list(MEASURED))


def jobs_of(model: AnyModel, transcripts: Sequence[Transcript]) -> list[Sequence[Transcript]]:
    """Return the dialogs of each job, one for a large model that reads each dialog alone."""
    size = 1 if is_large(model) and not reads_each(model.decoder) else CHUNK
    return [transcripts[first : first + size] for first in range(0, len(transcripts), size)]


def is_large(model: AnyModel) -> bool:
    """Whether threads share a model, since one for each process would take too much memory."""
    return getattr(model.decoder, "large", True)


OnRead = Callable[[int, bool], None]
"""Gets the work of each passage that was read, and whether it was a dialog's last."""


def work_of(settings: Answers, passages: Sequence[EncodedPassage]) -> list[int]:
    """Return about how many tokens a model reads in each passage: full caches read it as one."""
    work, start, cases = list[int](), 0, [*settings.cases]
    for tokens in (len(passage.ids) for passage in passages):
        apart = sum(start > budget for _, budget in cases)
        start += tokens
        again = sum(size for policy, size in cases if policy.reads_again and start > size)
        work.append(tokens * (1 + apart) + again)
    return work


def _reporting(
    sizes: Sequence[int],
    before: Sequence[int],
    report: Callable[[Progress], None],
    cancelled: Event | None,
) -> OnRead:
    """Return a function that reports the progress, with those `before` that were finished.

    It ends a dialog that is cancelled by a CancelledError.
    """
    total, began, lock = sum(sizes), perf_counter(), Lock()
    done, dialogs = sum(before), len(before)

    def on_read(work: int, last: bool) -> None:
        nonlocal done, dialogs
        if cancelled is not None and cancelled.is_set():
            raise CancelledError
        with lock:
            done, dialogs = done + work, dialogs + last
            title = f"{dialogs} of {len(sizes)} dialogs"
            report(Progress(done, total, title, perf_counter() - began, sum(before)))

    return on_read


def run_job(
    settings: Answers,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    on_read: OnRead = lambda work, last: None,
) -> list[Row]:
    """Return the rows of some dialogs."""
    one_blas_thread()  # here too, since this may be another process
    dialogs = [_read(settings, model, transcript, on_read) for transcript in transcripts]
    if reads_each(model.decoder):
        return read_together(dialogs)
    return [*chain.from_iterable(read_together([dialog]) for dialog in dialogs)]


Reading = Generator[tuple[Sequence[ModelCache], Ints], Floats, Result]
"""Yields caches and the next tokens (n,) of their text, and is sent their logits (C, n, V)."""


def read_together(dialogs: Sequence[Reading[list[Row]]]) -> list[Row]:
    """Let dialogs read in step, each its next tokens, and return their rows in order."""
    rows: list[list[Row]] = [[] for _ in dialogs]
    wanted = {number: next(dialog) for number, dialog in enumerate(dialogs)}
    while wanted:
        logits = iter(_logits([*wanted.values()]))
        for number in [*wanted]:
            try:
                wanted[number] = dialogs[number].send(next(logits))
            except StopIteration as end:
                rows[number] = end.value
                del wanted[number]
    return [*chain.from_iterable(rows)]


def _logits(wanted: Sequence[tuple[Sequence[ModelCache], Ints]]) -> list[Floats]:
    """Return the logits of what each of the dialogs reads next."""
    if len(wanted) == 1:
        return [read(*wanted[0])]
    every = [(cache, ids) for caches, ids in wanted for cache in caches]
    logits = iter(read_each([cache for cache, _ in every], [ids for _, ids in every]))
    return [np.stack([next(logits) for _ in caches]) for caches, _ in wanted]


def _read(
    settings: Answers,
    model: AnyModel,
    transcript: Transcript,
    on_read: OnRead,
) -> Reading[list[Row]]:
    """Read a dialog, and return its rows."""
    passages = encode_dialog(model, transcript)
    caches = settings.caches(model)
    for cache in caches.values():
        if isinstance(cache, TextCache):
            cache.reserve(len(model.tokens.first) + sum(len(passage.ids) for passage in passages))
    reader = AnswerReader(settings, model, transcript, caches)
    for passage, work in zip(passages, work_of(settings, passages), strict=True):
        yield from reader.read_passage(passage)
        on_read(work, passage is passages[-1])
    rows, dialog = list[Row](), (transcript.name, transcript.services)
    for row, ((name, budget), cache) in enumerate(caches.items()):
        measures = reader.measures(row)
        if any(policy.reads_again for policy in settings.policies):
            rereads = cache.tokens_reread if isinstance(cache, RereadCache) else 0
            measures[TOKENS_REREAD] = float(rereads), 1
        for metric, measured in measures.items():
            # The full cache is read once, and stands under every budget.
            shown = settings.budgets if name == FULL else (budget,)
            rows += [(*dialog, name, size, metric, *measured) for size in shown]
    return rows


def readable(
    model: AnyModel, transcripts: Sequence[Transcript]
) -> tuple[list[Transcript], list[str]]:
    """Return the dialogs that fit a model's context, and why others are skipped.

    Raises a ValueError if none fits.
    """
    fitting: list[Transcript] = []
    skipped: list[str] = []
    model.tokens.prepare(transcripts)
    for transcript in transcripts:
        try:
            encode_dialog(model, transcript)
        except ValueError as error:
            skipped.append(str(error))
        else:
            fitting.append(transcript)
    if not fitting:
        raise ValueError(skipped[0])
    return fitting, skipped


# ------------------------------------------------------------------------------- reading


class AnswerReader:
    """Reads a dialog with several caches at once, of which the first is the full one."""

    def __init__(
        self,
        settings: Answers,
        model: AnyModel,
        transcript: Transcript,
        caches: Mapping[tuple[str, int], ModelCache],
    ) -> None:
        self.settings, self.model, self.caches = settings, model, [*caches.values()]
        self.transcript = transcript
        self.scores: list[tuple[Floats, Floats, Bools]] = []  # nats, KL and same best token (C, n)
        self.ages: list[NDArray[np.intp]] = []  # of values (n,), see `_ages`
        self.value_ages: list[int] = []  # in turns, 0 if never mentioned
        self.value_sources: list[str] = []  # kinds of span, "" if never mentioned
        none = np.zeros((len(caches), 0), bool)
        graded = GRADED if settings.write_calls else GRADED[:1]
        self.right = {name: [none] for name in graded}  # (C, n)
        self._next: Floats | None = None  # logits of the next token (R, 1, V)
        self._row = np.arange(len(caches))  # that of each cache in these (C,)
        if model.tokens.first and not self.caches[0].count:
            self._next = read(self.caches, model.tokens.first, last=1)

    def read_passage(self, passage: EncodedPassage, *, ends: bool = True) -> Reading[None]:
        """Read a passage as a turn; before a call's turn ends, see what would be written.

        Unless the turn `ends`, nothing is evicted.
        """
        call, start = passage.passage.call is not None, self.caches[0].count
        for cache in self.caches:
            cache.turn_kind = passage.passage.kind
        writes = call and self.settings.write_calls
        # Without eviction inside a turn, a fork can go back to its start.
        before = self.caches
        if writes and self.settings.every is not None:
            before = [cache.fork() for cache in before]
        ids, ages = np.asarray(passage.ids), _ages(passage)
        best: list[NDArray[np.intp]] = []
        for first, end in self._parts(passage):
            before_first, after = yield from self._read(ids[first:end])
            for logits, token in ((before_first, first), (after[:, :-1], first + 1)):
                if logits is not None and logits.shape[1]:
                    came = slice(token, token + logits.shape[1])
                    best.append(self._score(logits, ids[came]))
                    self.ages.append(ages[came])
        if call:
            # The model writes neither the mark nor what follows the end.
            stop = min(passage.stop + 1, len(passage.ids))
            rest = passage.ids[passage.start : stop]
            end = stop - len(passage.ids) + sum(part.shape[1] for part in best)
            likeliest = np.concatenate(best, axis=1)[:, end - len(rest) : end]
            self._grade_values(passage, likeliest)
        if writes:
            exact = np.asarray((likeliest == rest).all(axis=1))
            others = [cache for cache, right in zip(before, exact, strict=True) if not right]
            self._grade(passage, start, others, exact)
        if ends:
            self._end_turn()

    def _end_turn(self) -> None:
        """End the turn: policies evict."""
        for cache in self.caches:
            cache.end_turn()

    def _read(self, ids: Ints) -> Reading[tuple[Floats | None, Floats]]:
        """Return the logits of the first token (R, 1, V), if any, and after each (R, n, V).

        Caches that have evicted nothing share the row of the full one, which is read for them.
        """
        full, *others = self.caches
        whole: list[Any] = [row for row in others if row.whole and row.ids == full.ids]
        alone = [cache not in whole for cache in self.caches]
        full.leads = bool(whole)
        logits = yield [*compress(self.caches, alone)], ids
        for cache in whole:
            cache.follow(full)
        before = None if self._next is None else self._next[self._row[alone]]
        self._row = np.where(alone, np.cumsum(alone) - 1, 0)
        self._next = logits[:, -1:]
        return before, logits

    def _parts(self, passage: EncodedPassage) -> Iterator[tuple[int, int]]:
        """Yield the bounds of parts to read; evict where `every` would while writing."""
        interval, writer, size = self.settings.every, passage.passage.writer, len(passage.ids)
        stops: set[int] = set()
        if interval is not None and writer != "user":
            stops = {*range(passage.start + interval, size, interval)}
        vocabulary, at_once = self.model.decoder.shape.vocabulary, LOGITS_AT_ONCE
        if vocabulary >= LARGE_VOCABULARY:
            at_once = max(at_once, MAX_CHUNK_NUMBERS // (len(self.caches) * vocabulary))
        bounds = sorted({0, size, *range(at_once, size, at_once), *stops})
        for first, end in pairwise(bounds):
            if first in stops:
                self._end_turn()
            yield first, end

    def _score(self, logits: Floats, targets: NDArray[np.intp]) -> NDArray[np.intp]:
        """Score logits (R, n, V) for the tokens that came; return the likeliest (C, n)."""
        nats, kl, best = losses(logits, targets)
        row = self._row
        self.scores.append((nats[row], kl[row], (best == best[0])[row]))
        return best[row]

    def _grade_values(self, passage: EncodedPassage, likeliest: NDArray[np.intp]) -> None:
        """Note which values each cache would write, by the likeliest tokens after the mark."""
        tokens, call = self.model.tokens, passage.passage.call
        assert call is not None
        rest = np.asarray(passage.ids[passage.start :][: likeliest.shape[1]])
        closes = '"' if tokens.calls_as_json else SEPARATOR.strip()
        # As long as greedy decoding writes the true tokens, it has read what was read here.
        for argument, span in zip(call.arguments, passage.passage.spans, strict=True):
            value = np.array(passage.tokens_of(*span), np.intp) - passage.start
            if not value.size:
                continue
            after = value[-1] + 1
            ends = [
                token in (rest[after], tokens.end)
                or tokens.text([token]).lstrip().startswith(closes)
                for token in likeliest[:, after].tolist()
            ]
            right = (likeliest[:, value] == rest[value]).all(axis=1) & ends
            self.right["values_right"].append(right[:, None])
            self.value_ages.append(_age(call, argument))
            self.value_sources.append(_source(self.transcript, argument))

    def _grade(
        self, passage: EncodedPassage, start: int, others: Sequence[ModelCache], exact: Bools
    ) -> None:
        """Note which caches write a call exactly, and which arguments the others get right."""
        tokens, call = self.model.tokens, passage.passage.call
        assert call is not None
        wanted = tokens.text(passage.ids)
        slots = [argument.slot for argument in call.arguments]
        right = np.repeat(exact[:, None], len(slots), axis=1)
        texts = self._written_calls(passage, start, others)
        for row, text in zip(np.flatnonzero(~exact), texts, strict=True):
            graded = {part.slot: part.right for part in grade_call(text, wanted).arguments}
            right[row] = [graded.get(slot, False) for slot in slots]
        self.right["calls_exact"].append(exact[:, None])
        self.right["arguments_right"].append(right)

    def _written_calls(
        self, passage: EncodedPassage, start: int, caches: Sequence[ModelCache]
    ) -> Iterator[str]:
        """Yield the call that each cache writes in place of a passage from token `start` on."""
        tokens, places = self.model.tokens, self.model.decoder.shape.positions - start
        most = min(len(passage.ids) + EXTRA_TOKENS, places) - len(tokens.marks["call"])
        interval = self.settings.every
        back = (
            len(passage.ids) if interval is None else 0
        )  # a text that is read again has fewer tokens
        for first in range(0, len(caches), WRITERS_AT_ONCE):
            writers = caches[first : first + WRITERS_AT_ONCE]
            forks = [cache.fork(cache.count - back) for cache in writers]
            yield from generate_passages(tokens, forks, "call", most=most, every=interval)

    def measures(self, row: int) -> dict[str, tuple[float, int]]:
        """Return each measure that one cache has a value of, with the number that it averages."""
        nats, kl, same_best = (
            np.concatenate([part[row] for part in parts])
            for parts in zip(*self.scores, strict=True)
        )
        ages, value_ages = np.concatenate(self.ages), np.array(self.value_ages, np.intp)
        value_sources = np.array(self.value_sources, np.str_)
        measured = {
            "nats": nats,
            "nats_arguments": nats[ages > 0],
            "kl": kl,
            "kl_p99": np.quantile(kl, [0.99]),
            "same_best": same_best,
        }
        for name, parts in self.right.items():
            right, full_right = np.concatenate(parts, axis=1)[[row, 0]]
            measured |= {name: right, f"{name}_of_full": right[full_right]}
            if name == "values_right":
                for source in SPAN_KINDS:
                    counted = full_right & (value_sources == source)
                    measured[f"values_right_of_full_{source}"] = right[counted]
                for age, (_, (low, high)) in AGES.items():
                    counted = full_right & (value_ages > low) & (value_ages <= high)
                    measured[f"values_right_of_full_{age}"] = right[counted]
        for age, (_, (low, high)) in AGES.items():
            measured[f"nats_{age}"] = nats[(ages > low) & (ages <= high)]
        means = {}
        for name, metric in metrics_of("answers").items():
            if name in measured and len(scores := metric.measure(measured)):
                means[name] = float(np.mean(scores, dtype=float)), len(scores)
        return means


def _ages(passage: EncodedPassage) -> NDArray[np.intp]:
    """Return how many turns before the call each token's value was mentioned; 0 for no value."""
    ages = np.zeros(len(passage.ids), np.intp)
    call = passage.passage.call
    if call is not None:
        for argument, span in zip(call.arguments, passage.passage.spans, strict=True):
            ages[list(passage.tokens_of(*span))] = _age(call, argument)
    return ages


def _source(transcript: Transcript, argument: Argument) -> str:
    """Return the kind of span that mentioned an argument last; "" if none did."""
    mention = argument.mention
    return "" if mention is None else transcript.span_kind(mention.turn, mention.start)


def _age(call: Call, argument: Argument) -> int:
    """Return how many turns before the call an argument was last mentioned; 0 if never."""
    return 0 if argument.mention is None else call.turn - argument.mention.turn
