"""Answers: what a language model loses where a policy evicts from its KV cache.

A dialog is read turn by turn under the full cache and under every policy and budget; each cache
computes later tokens from the entries that it still holds. For every cache are measured

- how likely the true next token is, at every token, and how far the predictions are from those of
  the full cache (`losses`);
- which argument values of calls the model would write, by its likeliest tokens after the true ones;
- with `write_calls`, whether it writes the whole call, token by token from its own.

The way of a run: `run_answers` makes jobs of a few dialogs, `run_job` reads those of a job in step
(`read_together`), and an `AnswerReader` reads one dialog under all its caches and grades it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, pairwise, product
from threading import Event, Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.limits import MAX_CHUNK_NUMBERS
from fdkvc.core.parameters import BUDGET, check_count, check_values
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
from fdkvc.runs.jobs import Execution, Progress, one_blas_thread, run_jobs, worker_count
from fdkvc.runs.options import RUN_POLICIES, option
from fdkvc.runs.workers import DaemonThreads

if TYPE_CHECKING:  # a help takes the settings alone
    import pandas as pd

Result = TypeVar("Result")

FULL = "full"
"""The control that evicts nothing, with which all others are compared."""

CHUNK = 4
"""Dialogs in one job of a worker."""

LOGITS_AT_ONCE = 12
"""Tokens that are read at once, whose logits are then in memory."""

LARGE_VOCABULARY = 2**14
"""From this vocabulary on, as many tokens are read at once as `MAX_CHUNK_NUMBERS` allows."""

WRITERS_AT_ONCE = 2
"""Caches that write calls at once: each is a copy."""

EXTRA_TOKENS = 24
"""How many tokens longer than the right call a written one may be."""

TOKENS_REREAD = "tokens_reread"
"""The metric that is measured only where a policy reads its text again."""

MEASURED = ("dialog", "services", "policy", "budget", "metric", "value", "count")

Row = tuple[str, str, str, int, str, float, int]
"""A row of the table with columns `MEASURED`."""

GRADED = ("values_right", "calls_exact", "arguments_right")
"""Metrics of what is written; each is also measured among what the full cache gets right."""


@dataclass(frozen=True)
class Answers:
    """What to run on every dialog; raises a ValueError for settings that cannot be run."""

    policies: tuple[Policy, ...] = option(
        f"{RUN_POLICIES}, random, and reread(fifo), which reads the last tokens again",
        default=tuple(map(read_policy, (*PAPER_POLICIES, "random", "reread(fifo)"))),
    )
    """The full cache is always added."""
    budgets: tuple[int, ...] = option(
        f"budgets to run, each {BUDGET.allowed(int)}", "N", default=(48, 96)
    )
    """Entries that a KV head may hold after a turn."""
    decides: str = option(
        "head: each KV head evicts on its own; layer or model: all its heads together",
        "WHO",
        default=DECIDES.default,
    )
    every: int | None = option("evict also after every N generated tokens", "N", default=None)
    write_calls: bool = option(
        "let the model also write each call, token by token", default=False
    )
    after_eviction: ClassVar[bool] = False
    """Whether only values count that are needed after a cache has evicted."""

    def __post_init__(self) -> None:
        check_values("budget", self.budgets, BUDGET)
        for policy in self.policies:
            check_no_future(policy)
        DECIDES.check(self.decides, "decides")
        if self.every is not None:
            check_count("every", self.every)
        if not (self.budgets and self.policies):
            raise ValueError("answers need at least one policy and one budget")
        check_values("policy", self.names)

    @property
    def names(self) -> list[str]:
        """The policies, the full cache first."""
        return [FULL, *(policy.name for policy in self.policies if policy.name != FULL)]

    def caches(self, model: AnyModel) -> dict[tuple[str, int], ModelCache]:
        """Return a new cache by policy and budget; first the full one, under the first budget."""
        caches = dict[tuple[str, int], ModelCache]()
        caches[FULL, self.budgets[0]] = model.full()
        for policy, budget in self.cases:
            if policy.reads_again:
                caches[policy.name, budget] = RereadCache(model, policy, budget)
            elif policy.name != FULL:
                caches[policy.name, budget] = model.evicting(policy, budget, self.decides)
        return caches

    @property
    def cases(self) -> Iterable[tuple[Policy, int]]:
        """Every policy with every budget."""
        return [(policy, budget) for budget, policy in product(self.budgets, self.policies)]


def run_answers(
    settings: Answers,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    **execution: Unpack[Execution],
) -> pd.DataFrame:
    """Let a model read and answer dialogs under every policy and budget.

    The table has columns `MEASURED` and a row for each dialog, policy, budget and metric that the
    dialog has a value of; `count` is the number of tokens, calls or arguments that it averages.

    A dialog's numbers depend neither on other dialogs nor on workers or chunks. Dialogs must have
    different names. Raises a ValueError if a dialog is longer than the model's context, or
    `workers` is below 1.
    """
    import pandas as pd

    workers = worker_count(execution)
    jobs = jobs_of(model, transcripts)

    def work(row: Transcript) -> int:
        return sum(work_of(settings, encode_dialog(model, row)))

    sizes = [[*map(work, job)] for job in jobs]
    run = partial(run_job, settings, model)
    if execution.get("executor") is None and (workers == 1 or is_large(model)):
        # Threads share a large model, which each process would have to load for itself. They can
        # report every passage; processes report finished jobs only.
        threads: Any = None if workers == 1 else DaemonThreads(workers)
        execution["executor"], report = threads, execution.pop("on_progress", None)
        if report is not None:
            finished = execution.get("finished")
            finished_sizes = []  # sizes of dialogs that an earlier run has finished
            if finished is not None:
                finished_sizes = [*chain(*map(sizes.__getitem__, finished.results))]
            on_read = _reporting(
                [*chain(*sizes)], finished_sizes, report, execution.get("cancelled")
            )
            run = partial(run, on_read=on_read)
    chunks = run_jobs(run, jobs, **execution)
    return pd.DataFrame([*chain.from_iterable(chunks)], columns=list(MEASURED))


def jobs_of(model: AnyModel, transcripts: Sequence[Transcript]) -> list[Sequence[Transcript]]:
    """Return the dialogs of each job: one for a large model that cannot read several at once."""
    size = 1 if is_large(model) and not reads_each(model.decoder) else CHUNK
    return [transcripts[first : first + size] for first in range(0, len(transcripts), size)]


def is_large(model: AnyModel) -> bool:
    """Whether threads share a model, since a copy in each process would take too much memory."""
    # Models of other engines do not say, and count as large.
    return getattr(model.decoder, "large", True)


OnRead = Callable[[int, bool], None]
"""Gets the work of each passage that was read, and whether it was a dialog's last."""


def work_of(settings: Answers, passages: Sequence[EncodedPassage]) -> list[int]:
    """Return about how many tokens a model reads in each passage: full caches read it as one.

    Where something is read again, it is after every other passage: whole messages leave some room.
    """
    work = []
    start = 0
    for passage in passages:
        end = start + len(passage.ids)
        caches = 1
        reread_tokens = 0
        for policy, size in settings.cases:
            caches += start > size
            if policy.reads_again and end > size:
                reread_tokens += size
        work.append(caches * len(passage.ids) + reread_tokens // 2)
        start = end
    return work


def _reporting(
    sizes: Sequence[int],
    finished_sizes: Sequence[int],
    report: Callable[[Progress], None],
    cancelled: Event | None,
) -> OnRead:
    """Return a function that reports progress, of dialogs of these sizes.

    `finished_sizes` has the sizes of those that were finished before the run. The function ends a
    dialog that is cancelled by a CancelledError.
    """
    total = sum(sizes)
    began = perf_counter()
    # Several threads may read.
    lock = Lock()
    work_done = sum(finished_sizes)
    dialogs = len(finished_sizes)

    def on_read(work: int, last: bool) -> None:
        nonlocal work_done, dialogs
        if cancelled is not None and cancelled.is_set():
            raise CancelledError
        with lock:
            work_done += work
            dialogs += last
            title = f"{dialogs} of {len(sizes)} dialogs"
            report(
                Progress(work_done, total, title, perf_counter() - began, sum(finished_sizes))
            )

    return on_read


def run_job(
    settings: Answers,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    on_read: OnRead = lambda work, last: None,
) -> list[Row]:
    """Return the rows of some dialogs."""
    one_blas_thread()  # here too, since this may be another process
    # Generators: each stops at what it wants read next.
    dialogs = [_read(settings, model, transcript, on_read) for transcript in transcripts]
    batches = [dialogs] if reads_each(model.decoder) else [[dialog] for dialog in dialogs]
    rows = chain.from_iterable(map(read_together, batches))
    return [*chain.from_iterable(rows)]


Requests = Generator[tuple[Sequence[ModelCache], Ints], Floats, Result]
"""Yields caches and the next tokens (n,) to read with all of them; is sent the logits (C, n, V)."""


def read_together(dialogs: Sequence[Requests[Result]]) -> list[Result]:
    """Read the next tokens of all dialogs at once, until all have ended; return their results."""
    results = {}
    requests = {number: next(dialog) for number, dialog in enumerate(dialogs)}
    while requests:
        logits = _logits([*requests.values()])
        for number, of_dialog in zip([*requests], logits, strict=True):
            try:
                requests[number] = dialogs[number].send(of_dialog)
            except StopIteration as end:  # the dialog has ended
                results[number] = end.value
                del requests[number]
    return [results[number] for number in range(len(dialogs))]


def _logits(requests: Sequence[tuple[Sequence[ModelCache], Ints]]) -> list[Floats]:
    """Return the logits (C, n, V) that each dialog requests."""
    if len(requests) == 1:
        return [read(*requests[0])]
    # One batch of the texts of all caches of all dialogs, which is then split by dialog.
    batch: list[ModelCache] = []
    next_ids = []
    ends = []
    for caches, ids in requests:
        batch += caches
        next_ids += [ids] * len(caches)
        ends.append(len(batch))
    logits = read_each(batch, next_ids)
    return [np.stack(logits[first:end]) for first, end in pairwise([0, *ends])]


def _read(
    settings: Answers, model: AnyModel, transcript: Transcript, on_read: OnRead
) -> Requests[list[Row]]:
    """Read a dialog, and return its rows."""
    passages = encode_dialog(model, transcript)
    caches = settings.caches(model)
    size = len(model.tokens.first) + sum(len(passage.ids) for passage in passages)
    for cache in caches.values():
        if isinstance(cache, TextCache):
            cache.reserve(size)
    reader = AnswerReader(settings, model, transcript, caches)
    for passage, work in zip(passages, work_of(settings, passages), strict=True):
        yield from reader.read_passage(passage)
        on_read(work, passage is passages[-1])
    rows = []
    dialog = (transcript.name, transcript.services)
    for row, ((name, budget), cache) in enumerate(caches.items()):
        measures = reader.measures(row)
        if any(policy.reads_again for policy in settings.policies):
            rereads = cache.tokens_reread if isinstance(cache, RereadCache) else 0
            measures[TOKENS_REREAD] = float(rereads), 1
        for metric, measured in measures.items():
            # The full cache is read once, and has a row for every budget.
            budgets = settings.budgets if name == FULL else (budget,)
            rows += [(*dialog, name, size, metric, *measured) for size in budgets]
    return rows


def readable(
    model: AnyModel, transcripts: Sequence[Transcript]
) -> tuple[list[Transcript], list[str]]:
    """Return the dialogs that fit a model's context, and for each other one why it is skipped.

    Raises a ValueError if none fits.
    """
    fitting = []
    skipped = []
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
    """Reads a dialog with C caches at once, of which the first is the full one.

    Until a cache evicts, it computes what the full one does, so the full one is read for it. So the
    logits have R ≤ C rows, those of the caches that were read.
    """

    def __init__(
        self,
        settings: Answers,
        model: AnyModel,
        transcript: Transcript,
        caches: Mapping[tuple[str, int], ModelCache],
    ) -> None:
        self.settings = settings
        self.model = model
        self.caches = [*caches.values()]
        self.transcript = transcript
        # 1. By token of the dialog, in parts as they are read.
        self.scores: list[
            tuple[Floats, Floats, Bools]
        ] = []  # nats, KL and same best token (C, n)
        self.ages: list[NDArray[np.intp]] = []  # of values (n,), see `_ages`
        # 2. By argument value of the dialog's calls.
        self.value_ages: list[int] = []  # in turns, 0 if never mentioned
        self.value_sources: list[str] = []  # kinds of span, "" if never mentioned
        nothing = np.zeros((len(caches), 0), bool)
        graded = GRADED if settings.write_calls else GRADED[:1]
        self.right = {name: [nothing] for name in graded}  # (C, n)
        self.evicted = [nothing]  # whether a cache had evicted by then (C, n)
        # 3. What the last tokens that were read predict.
        self._next: Floats | None = None  # logits of the next token (R, 1, V)
        self._row = np.arange(len(caches))  # the row of each cache in them (C,)
        # Caches that go on with a text have read its beginning.
        if model.tokens.first and not self.caches[0].count:
            self._next = read(self.caches, model.tokens.first, last=1)

    def read_passage(self, passage: EncodedPassage, *, is_turn: bool = True) -> Requests[None]:
        """Read a passage as a turn; before the turn of a call ends, grade what would be written.

        The policies evict after it only if the turn `is_turn`.
        """
        call = passage.passage.call is not None
        start = self.caches[0].count
        for cache in self.caches:
            cache.turn_kind = passage.passage.kind
        writes = call and self.settings.write_calls
        # 1. Keep copies that can write the call later. Without eviction inside a turn none are
        #    needed, since a fork can go back to the turn's start.
        call_caches = self.caches
        if writes and self.settings.every is not None:
            call_caches = [cache.fork() for cache in call_caches]
        # 2. Read the passage, and score its tokens by the logits before each: those of the first
        #    token of a part come from the part before.
        ids = np.asarray(passage.ids)
        ages = _ages(passage)
        best: list[NDArray[np.intp]] = []  # the likeliest tokens (C, n)
        for first, end in self._parts(passage):
            previous, following = yield from self._read(ids[first:end])
            for logits, token in ((previous, first), (following[:, :-1], first + 1)):
                if logits is not None and logits.shape[1]:
                    scored = slice(token, token + logits.shape[1])
                    row = self._row
                    nats, kl, likely = losses(logits, ids[scored])
                    same_best = likely == likely[0]
                    self.scores.append((nats[row], kl[row], same_best[row]))
                    best.append(likely[row])
                    self.ages.append(ages[scored])
        # 3. Grade a call by its own tokens and the end: the model writes neither the mark before
        #    them nor what closes the passage after the end.
        if call:
            stop = min(passage.stop + 1, len(passage.ids))
            written = passage.ids[passage.start : stop]
            # Counted from the end, as the first token of a dialog has no prediction.
            end = stop - len(passage.ids) + sum(part.shape[1] for part in best)
            likeliest = np.concatenate(best, axis=1)[:, end - len(written) : end]
            self._grade_values(passage, likeliest)
        # 4. Let those caches write the call that would not write it exactly: for the others,
        #    greedy decoding gives the true tokens.
        if writes:
            exact = np.asarray((likeliest == written).all(axis=1))
            others = [
                cache for cache, right in zip(call_caches, exact, strict=True) if not right
            ]
            self._grade(passage, start, others, exact)
        if is_turn:
            self._end_turn()

    def _end_turn(self) -> None:
        """End the turn: policies evict."""
        for cache in self.caches:
            cache.end_turn()

    def _read(self, ids: Ints) -> Requests[tuple[Floats | None, Floats]]:
        """Return the logits before the first token (R, 1, V), if any, and after each (R, n, V).

        Caches that have evicted nothing share the row of the full one, which is read for them.
        """
        # 1. Read the full cache, and those that evicted or have another text.
        full, *following = self.caches
        whole_caches = list[Any]()
        for cache in following:
            if cache.whole and cache.ids == full.ids:
                whole_caches.append(cache)
        single = [cache not in whole_caches for cache in self.caches]
        full.leads = bool(whole_caches)
        logits = yield [*compress(self.caches, single)], ids
        for cache in whole_caches:
            cache.follow(full)
        # 2. The logits before, in the rows of now. A cache that evicted since then had the row of
        #    the full one, and now has its own.
        previous = None if self._next is None else self._next[self._row[single]]
        self._row = np.where(single, np.cumsum(single) - 1, 0)
        self._next = logits[:, -1:]
        return previous, logits

    def _parts(self, passage: EncodedPassage) -> Iterator[tuple[int, int]]:
        """Yield the bounds of parts to read; evict between them where `every` says so.

        That is as often as while the model itself writes.
        """
        interval = self.settings.every
        writer = passage.passage.writer
        size = len(passage.ids)
        stops: set[int] = set()
        if interval is not None and writer != "user":
            stops = {*range(passage.start + interval, size, interval)}
        vocabulary = self.model.decoder.shape.vocabulary
        at_once = LOGITS_AT_ONCE
        if vocabulary >= LARGE_VOCABULARY:
            at_once = max(at_once, MAX_CHUNK_NUMBERS // (len(self.caches) * vocabulary))
        bounds = sorted({0, size, *range(at_once, size, at_once), *stops})
        for first, end in pairwise(bounds):
            if first in stops:
                self._end_turn()
            yield first, end

    def _grade_values(self, passage: EncodedPassage, likeliest: NDArray[np.intp]) -> None:
        """Note which values each cache would write, by the likeliest tokens (C, n) after the mark.

        A value is right if each of its tokens is the likeliest after the true ones, so greedy
        decoding from the value's start would write it; and if the value then ends.
        """
        tokens = self.model.tokens
        call = passage.passage.call
        assert call is not None
        true_ids = np.asarray(passage.ids[passage.start :][: likeliest.shape[1]])
        closes = '"' if tokens.calls_as_json else SEPARATOR.strip()
        for argument, span in zip(call.arguments, passage.passage.spans, strict=True):
            value = np.array(passage.tokens_of(*span), np.intp) - passage.start
            # An empty value has no token that could be right or wrong.
            if not value.size:
                continue
            # Another token than the true one may end the value as well: a quote with a comma.
            end_place = value[-1] + 1
            value_ends = []
            for token in likeliest[:, end_place].tolist():
                is_closed = tokens.text([token]).lstrip().startswith(closes)
                value_ends.append(is_closed or token in (true_ids[end_place], tokens.end))
            right = (likeliest[:, value] == true_ids[value]).all(axis=1) & value_ends
            self.right["values_right"].append(right[:, None])
            self.evicted.append(self._row[:, None] > 0)
            self.value_ages.append(_age(call, argument))
            self.value_sources.append(_source(self.transcript, argument))

    def _grade(
        self,
        passage: EncodedPassage,
        start: int,
        reading_caches: Sequence[ModelCache],
        exact: Bools,
    ) -> None:
        """Note which caches write a call exactly, and which arguments the others get right."""
        tokens = self.model.tokens
        call = passage.passage.call
        assert call is not None
        expected = tokens.text(passage.ids)
        slots = [argument.slot for argument in call.arguments]
        right = np.repeat(exact[:, None], len(slots), axis=1)  # (C, arguments)
        texts = self._written_calls(passage, start, reading_caches)
        for row, text in zip(np.flatnonzero(~exact), texts, strict=True):
            graded = {
                part.slot: part.as_expected for part in grade_call(text, expected).arguments
            }
            right[row] = [graded.get(slot, False) for slot in slots]
        self.right["calls_exact"].append(exact[:, None])
        self.right["arguments_right"].append(right)

    def _written_calls(
        self, passage: EncodedPassage, start: int, caches: Sequence[ModelCache]
    ) -> Iterator[str]:
        """Yield the call that each cache writes in place of a passage from token `start` on."""
        tokens = self.model.tokens
        places = self.model.decoder.shape.positions - start
        max_tokens = min(len(passage.ids) + EXTRA_TOKENS, places) - len(tokens.marks["call"])
        interval = self.settings.every
        # Back to the passage's start, unless the caches are copies from there (`read_passage`).
        # By a difference, since a text that is read again has fewer tokens than `start`.
        fork = len(passage.ids) if interval is None else 0
        for first in range(0, len(caches), WRITERS_AT_ONCE):
            writers = caches[first : first + WRITERS_AT_ONCE]
            forks = [cache.fork(cache.count - fork) for cache in writers]
            yield from generate_passages(
                tokens, forks, "call", most=max_tokens, every=interval
            )

    def measures(self, row: int) -> dict[str, tuple[float, int]]:
        """Return each metric that one cache has a value of, with the number that it averages."""
        # 1. By token.
        kinds = zip(*self.scores, strict=True)
        nats, kl, same_best = (
            np.concatenate([part[row] for part in parts]) for parts in kinds
        )
        ages = np.concatenate(self.ages)
        value_ages = np.array(self.value_ages, np.intp)
        value_sources = np.array(self.value_sources, np.str_)
        measured = {
            "nats": nats,
            "nats_arguments": nats[ages > 0],
            "kl": kl,
            "kl_p99": np.quantile(kl, [0.99]),
            "same_best": same_best,
        }
        # 2. By value or call. Among what the full cache gets right, a policy's share is what it
        #    lost, whatever the model cannot do with any cache.
        for name, parts in self.right.items():
            right, full_right = np.concatenate(parts, axis=1)[[row, 0]]
            if self.settings.after_eviction:
                full_right = full_right & np.concatenate(self.evicted, axis=1)[row]
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
        # 3. The mean of each over the dialog.
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
