"""Background runs are bounded, can be cancelled, and are found again for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fdkvc.experiments.benchmark import Progress
from fdkvc.ui.kit.jobs import Job, Jobs, Report

SECONDS = 10


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Gate:
    """Work that begins, reports, and waits to be let through."""

    def __init__(self, result: object = "done") -> None:
        self.begun, self.open, self.result = threading.Event(), threading.Event(), result

    def __call__(self, report: Report, cancelled: threading.Event) -> object:
        report(Progress(1, 4, "first quarter", 2.0))
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
    def work(report: Report, cancelled: threading.Event) -> None:
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


def test_as_many_run_and_wait_as_may_and_the_next_is_refused(gates: list[Gate]) -> None:
    jobs = Jobs(running=1, waiting=2)
    (first, gate), *waiting = [begin(jobs, gates) for _ in range(3)]
    assert gate.begun.wait(SECONDS)
    assert [job.waiting for job, _ in waiting] == [True, True]
    assert [jobs.ahead_of(job) for job in (first, *(job for job, _ in waiting))] == [0, 1, 2]
    with pytest.raises(ValueError, match="busy with 3 runs, and takes no more than 3 at once"):
        jobs.start(Gate())
    gate.open.set()
    finished(first)
    assert begin(jobs, gates)[0].waiting


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
        (ValueError("budget is 0"), "The run could not be done: budget is 0."),
        (MemoryError(), "The run needed more memory than there is: ask for fewer dialogs."),
        (
            KeyError("gamma"),
            "The run failed, and that is this program's fault: KeyError, 'gamma'.",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(error: Exception, sentence: str) -> None:
    job = raising(error)
    assert job.problem == sentence
    assert job.result is None


def test_a_job_is_found_by_its_name_and_by_no_other(gates: list[Gate]) -> None:
    jobs = Jobs()
    job, _ = begin(jobs, gates)
    assert jobs.find(job.name) is job
    assert jobs.find("another") is None
    assert jobs.find(None) is None


def test_only_so_many_results_are_kept_those_asked_for_last(gates: list[Gate]) -> None:
    clock = Clock()
    jobs = Jobs(kept=2, clock=clock)
    done = []
    for second in range(3):
        clock.now = float(second)
        job, gate = begin(jobs, gates)
        gate.open.set()
        done.append(finished(job))
    clock.now = 3.0
    assert jobs.find(done[0].name) is done[0]
    clock.now = 4.0
    assert jobs.find(done[1].name) is None
    assert jobs.find(done[2].name) is done[2]
    assert jobs.find(done[0].name) is done[0]


def test_a_result_is_forgotten_once_nobody_asks_for_it(gates: list[Gate]) -> None:
    clock = Clock()
    jobs = Jobs(kept_seconds=60, clock=clock)
    job, gate = begin(jobs, gates)
    gate.open.set()
    finished(job)
    for now in (50.0, 100.0):
        clock.now = now
        assert jobs.find(job.name) is job
    clock.now = 161.0
    jobs.find(None)
    assert jobs.find(job.name) is None


def test_a_running_job_is_never_forgotten(gates: list[Gate]) -> None:
    clock = Clock()
    jobs = Jobs(kept=0, kept_seconds=1, clock=clock)
    job, _ = begin(jobs, gates)
    clock.now = 1000.0
    assert jobs.find(job.name) is job
    clock.now = 5000.0
    assert jobs.find(job.name) is job


def test_results_are_kept_by_their_bytes_and_the_last_whatever_its_size() -> None:
    jobs = Jobs(kept_bytes=2500, clock=(clock := Clock()))
    made = []
    for size in (1000, 1000, 1000, 9000):
        made.append(finished(jobs.start(lambda *_, size=size: bytes(size))))
        clock.now += 1
        jobs.find(None)  # forgets what is too much

    assert [jobs.find(job.name) is not None for job in made] == [False, False, False, True]
    assert made[-1].size > 9000


def test_what_is_finished_is_found_by_what_was_asked_and_can_be_dropped(gates: list[Gate]) -> None:
    jobs = Jobs()
    job = jobs.start(gate := Gate("first"), content=("seed", 1))
    gates.append(gate)
    assert jobs.at_hand(("seed", 1)) is None  # not yet
    gate.open.set()
    finished(job)
    again = finished(jobs.start(lambda *_: "second", content=("seed", 1)))
    assert jobs.at_hand(("seed", 1)) is again
    assert jobs.at_hand(("seed", 2)) is None
    jobs.drop(again.name)
    assert jobs.at_hand(("seed", 1)) is job
    assert jobs.find(again.name) is None


def test_what_was_cut_short_or_failed_is_at_hand_for_nobody(gates: list[Gate]) -> None:
    jobs = Jobs()
    job = jobs.start(gate := Gate(), content="asked")
    gates.append(gate)
    assert gate.begun.wait(SECONDS)
    job.cancel()
    gate.open.set()
    assert finished(job).result == "cut short"
    assert jobs.at_hand("asked") is None
    finished(jobs.start(lambda *_: 1 / 0, content="asked"))
    assert jobs.at_hand("asked") is None
