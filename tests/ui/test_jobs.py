"""Background runs wait for their turn, can be cancelled, and their results have a bound."""

import threading
from collections.abc import Hashable, Iterator
from unittest.mock import Mock

import pytest

from fdkvc.core.limits import MAX_ENDED_JOBS
from fdkvc.runs.jobs import Progress
from fdkvc.ui import run_panel
from fdkvc.ui.jobs import Held, Job, Jobs, Report

SECONDS = 10


class Gate:
    """Work that begins, reports, and waits to be let through."""

    def __init__(self, result: object = "done") -> None:
        self.begun, self.open, self.result = threading.Event(), threading.Event(), result

    def __call__(self, on_progress: Report, cancelled: threading.Event) -> object:
        on_progress(Progress(1, 4, "first quarter", 2.0))
        self.begun.set()
        assert self.open.wait(SECONDS)
        return "cut short" if cancelled.is_set() else self.result


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    made: list[Gate] = []
    yield made
    for gate in made:
        gate.open.set()


def begin(jobs: Jobs, gates: list[Gate]) -> tuple[Job, Gate]:
    gate = Gate(result=len(gates))
    gates.append(gate)
    return jobs.start(gate), gate


def finished(job: Job) -> Job:
    job.future.exception(timeout=SECONDS)
    return job


def raising(error: Exception) -> Job:
    def work(on_progress: Report, cancelled: threading.Event) -> None:
        raise error

    return finished(Jobs().start(work))


def test_a_job_reports_while_it_runs_and_gives_its_result(gates: list[Gate]) -> None:
    job, gate = begin(Jobs(), gates)
    assert gate.begun.wait(SECONDS)
    assert (job.waiting, job.finished, job.result, job.problem) == (False, False, None, "")
    assert job.progress == Progress(1, 4, "first quarter", 2.0)
    assert job.progress.seconds_left == 6.0
    gate.open.set()
    assert finished(job).result == 0
    assert job.problem == ""


def test_only_so_many_run_at_once_and_others_wait_for_their_turn(gates: list[Gate]) -> None:
    jobs = Jobs(running=1)
    (first, gate), (second, then) = begin(jobs, gates), begin(jobs, gates)
    assert gate.begun.wait(SECONDS)
    assert (first.waiting, second.waiting) == (False, True)
    assert not then.begun.is_set()
    gate.open.set()
    finished(first)
    assert then.begun.wait(SECONDS)
    assert not second.waiting


def test_cancel_ends_what_waits_at_once_and_what_runs_when_it_looks(gates: list[Gate]) -> None:
    jobs = Jobs(running=1)
    running, gate = begin(jobs, gates)
    waiting, never = begin(jobs, gates)
    assert gate.begun.wait(SECONDS)
    waiting.cancel()
    running.cancel()
    assert (waiting.finished, waiting.result, waiting.problem) == (True, None, "")
    assert not running.finished
    gate.open.set()
    assert finished(running).result == "cut short"
    assert not never.begun.is_set()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("budget is 0"), "The run failed: budget is 0."),
        (MemoryError(), "The run needs more memory than is available: choose fewer dialogs."),
        (KeyError("gamma"), "Internal error: KeyError, 'gamma'."),
    ],
)
def test_what_goes_wrong_is_one_sentence(error: Exception, sentence: str) -> None:
    job = raising(error)
    assert job.problem == sentence
    assert job.result is None


def test_results_have_a_bound_in_bytes_and_the_last_stays_whatever_its_size(
    gates: list[Gate],
) -> None:
    jobs = Jobs(running=2, max_bytes=2500)
    running, gate = begin(jobs, gates)
    assert gate.begun.wait(SECONDS)
    made = [finished(jobs.start(lambda size=size, **_: bytes(size))) for size in (1000, 1000, 1000)]
    assert [jobs.find(job.name) is not None for job in made] == [False, True, True]

    made.append(finished(jobs.start(lambda **_: bytes(9000))))

    assert [jobs.find(job.name) is not None for job in made] == [False, False, False, True]
    assert made[-1].size > 9000
    assert jobs.find(running.name) is running
    assert jobs.find("another") is None


def test_results_are_found_by_the_type_of_what_was_asked_and_can_be_dropped(
    gates: list[Gate],
) -> None:
    jobs = Jobs(running=1)
    job = jobs.start(gate := Gate("first"), content=("seed", 1))
    gates.append(gate)
    assert jobs.results(tuple) == []  # not yet
    gate.open.set()
    other = jobs.start(lambda **_: "other", content="text")
    again = finished(jobs.start(lambda **_: "second", content=("seed", 1)))
    failed = finished(jobs.start(lambda **_: 1 / 0, content=("seed", 2)))
    assert jobs.results(tuple) == [job, again]
    assert jobs.results(str) == [other]
    assert jobs.find(failed.name) is failed


def test_few_failed_and_cancelled_jobs_are_kept(gates: list[Gate]) -> None:
    def fail(on_progress: Report, cancelled: threading.Event) -> None:
        raise ValueError("no dialogs")

    jobs = Jobs(running=1)
    begun, gate = begin(jobs, gates)
    assert gate.begun.wait(SECONDS)
    waiting = [jobs.start(fail) for _ in range(MAX_ENDED_JOBS)]
    for job in waiting:
        job.cancel()
    gate.open.set()
    failed = [finished(jobs.start(fail)) for _ in range(MAX_ENDED_JOBS + 1)]
    assert [jobs.find(job.name) for job in waiting] == [None] * len(waiting)
    assert [jobs.find(job.name) for job in failed[-MAX_ENDED_JOBS:]] == failed[-MAX_ENDED_JOBS:]
    assert jobs.find(begun.name) is begun  # it has a result


def test_a_job_goes_with_the_last_session_that_waits_for_it(gates: list[Gate]) -> None:
    jobs = Jobs(running=1)
    (running, gate), (shared, _), (alone, _) = (begin(jobs, gates) for _ in range(3))
    assert gate.begun.wait(SECONDS)
    one, other = Held(), Held()
    one.hold("first", running)
    one.hold("check", shared)
    other.hold("check", shared)
    one.hold("search", alone)
    one.let_go("search")
    assert alone.finished
    ended = finished(Jobs().start(lambda **_: "result"))
    one.hold("ended", ended)

    one.release()
    assert running.cancelled.is_set()
    assert not ended.cancelled.is_set()
    assert shared.waiting
    other.hold("check", shared)
    assert shared.waiting
    other.release()
    assert shared.finished


class MeetingJobs(Jobs):
    """Jobs at which a session that has found one waits until another session has let go of it."""

    def __init__(self) -> None:
        super().__init__(running=2)
        self.found, self.let_go = threading.Barrier(2), threading.Barrier(2)

    def of(self, content: Hashable) -> Job | None:
        job = super().of(content)
        if job is not None:
            self.found.wait(SECONDS)
            self.let_go.wait(SECONDS)
        return job


def test_a_session_never_waits_for_a_job_that_another_one_just_cancelled(gates: list[Gate]) -> None:
    jobs, leaving, coming = MeetingJobs(), Held(), Held()
    gates += [Gate("whole"), Gate("whole")]
    cut_short = leaving.hold_job_of("card", jobs, gates[0], "file")
    assert gates[0].begun.wait(SECONDS)

    joined = list[Job]()
    arguments = "card", jobs, gates[1], "file"
    thread = threading.Thread(target=lambda: joined.append(coming.hold_job_of(*arguments)))
    thread.start()
    jobs.found.wait(SECONDS)
    leaving.release()
    jobs.let_go.wait(SECONDS)
    thread.join(SECONDS)
    for gate in gates:
        gate.open.set()

    assert finished(cut_short).result == "cut short"
    assert finished(joined[0]).result == "whole"
    assert not joined[0].cancelled.is_set()


def test_results_that_a_session_shows_together_do_not_push_each_other_out(
    gates: list[Gate],
) -> None:
    jobs, held = Jobs(max_bytes=1000), Held()
    together, others = [begin(jobs, gates) for _ in range(2)], [begin(jobs, gates)]
    for number, (job, gate) in enumerate([*together, *others]):
        gate.result = bytes(800)
        if number < len(together):
            held.hold(f"{number}", job)
        gate.open.set()
        finished(job)
        if number == 1:
            assert all(jobs.find(job.name) is job for job, _ in together)
    assert [jobs.find(job.name) for job, _ in together] == [None, None]


def test_a_bar_says_how_long_it_still_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 30.0, 100.0])
    monkeypatch.setattr(run_panel, "perf_counter", lambda: next(times))
    place = Mock()
    show = run_panel.timed_bar(place, "Reading")
    for share in (0.0, 0.25, 1.0):
        show(share)
    assert [call.args for call in place.progress.call_args_list] == [
        (0.0, "Reading, estimating the time left"),
        (0.25, "Reading, about 2 min left"),
        (1.0, "Reading, almost done"),
    ]
