"""The command line: ``python -m fdkvc benchmark`` and its other subcommands.

Every module that takes time to import is imported by the subcommand that needs it.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from fdkvc.limits import MAX_TURNS
from fdkvc.parameters import BUDGET, DIALOGS, SEED, WORKERS, Field, read_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fdkvc.corpora.recordings import Recording
    from fdkvc.corpora.transcripts import Transcript
    from fdkvc.experiments.answers import Answers
    from fdkvc.experiments.benchmark import Benchmark, Progress, Results
    from fdkvc.experiments.proxies import AnswersTables
    from fdkvc.files.record import Record
    from fdkvc.lm.language_model import AnyModel, LanguageModel
    from fdkvc.policies import Policy
    from fdkvc.report.document import Part
    from fdkvc.synthetic.scenarios import Scenario

MISTAKE = 2

MOST_LETTERS = 1000
"""Characters of a sentence about a mistake; the middle of a longer one is left out."""

SECONDS_A_LINE = 10.0
"""Between two lines of progress where no terminal can write over the first."""

MOST_LEFT = 10
"""Dialogs of which it is said why they are left out of a trace."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    int
        0; 2 after a mistake, which one sentence on stderr explains; 128 and the number of the
        signal after Ctrl-C, SIGTERM or SIGHUP.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, it stays for as long as the process
    if sys.stdout is None:
        return _end("the output cannot be written: standard output is closed", MISTAKE)
    try:
        with _signals():
            settings = _parser().parse_args(arguments)
            settings.run(settings)
    except SystemExit:  # argparse, after printing its help
        pass
    except ValueError as mistake:
        return _end(str(mistake), MISTAKE)
    except (MemoryError, OverflowError):
        return _end("this needs more memory than there is: ask for a smaller budget", MISTAKE)
    except KeyboardInterrupt as ending:
        number = ending.args[0] if ending.args else signal.SIGINT
        return _end("interrupted; files are written whole or not at all", 128 + number)
    try:
        _flush()
    except ValueError as mistake:
        return _end(str(mistake), MISTAKE)
    return 0


@contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does; those that are ignored stay so."""

    def end(number: int, _: object) -> NoReturn:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # one is enough, and cleaning up takes a moment
        raise KeyboardInterrupt(number)

    endings = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]  # Windows has one
    before = [each for each in endings if each and signal.getsignal(each) == signal.SIG_DFL]
    try:
        for each in before:
            signal.signal(each, end)
        yield
    finally:
        for each in before:
            signal.signal(each, signal.SIG_DFL)


def _end(sentence: str, code: int) -> int:
    # What was typed or read may hold anything: a terminal obeys some characters.
    plain = "".join(letter if letter.isprintable() else " " for letter in sentence)
    if len(plain) > MOST_LETTERS:
        plain = f"{plain[: MOST_LETTERS // 2]} … {plain[-MOST_LETTERS // 2 :]}"
    _say(f"fdkvc: {plain}")
    return code


def _say(text: str, end: str = "\n") -> None:
    """Say something on stderr, if anything can be said there."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _to_nowhere(sys.stderr)


def _flush(text: str = "") -> None:
    """Write all of the output, and a text after it; a reader may have seen enough.

    Raises
    ------
    ValueError
        If it cannot be written.
    """
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        _to_nowhere(sys.stdout)
    except OSError as error:
        _to_nowhere(sys.stdout)
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"the output cannot be written: {reason}") from None


def _to_nowhere(stream: TextIO) -> None:
    """Let what is still to be written to a stream be forgotten."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# ------------------------------------------------------------------------------- the arguments


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are ValueErrors of one sentence, as everywhere else."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_HelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m fdkvc",
        description="See, compare and judge KV-cache eviction policies for dialogs.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[Any], None], what: str) -> Callable[..., Any]:
        added = commands.add_parser(name, help=what, description=what)
        added.set_defaults(run=run)
        return added.add_argument

    option = command("benchmark", _benchmark, "measure policies on scenarios, beside the paper")
    _add_dialogs(option)
    _add_choice(option)
    option("--baseline", metavar="KEY", help="default: h2o, or the first policy if it is not run")
    option("--out", metavar="DIR", help="write the tables as CSV, and run.json, to this folder")

    option = command(
        "ablation", _ablation, "sweep a hyperparameter of FD-KVC on the Mixed scenario"
    )
    option("--parameter", required=True, metavar="NAME", help="such as w_c or gamma")
    option("--values", nargs="+", type=_number, metavar="X", help="default: those the paper sweeps")
    _add_dialogs(option, replace(DIALOGS, default=200))
    option("--out", required=True, metavar="DIR", help="write ablation.csv to this folder")

    option = command(
        "study", _study, "measure all of the paper's tables, figures and claims, and judge them"
    )
    _add_dialogs(option)
    _add_choice(option)
    option("--out", required=True, metavar="DIR", help="write all tables and run.json there")

    option = command("sweep", _sweep, "sweep one or two hyperparameters of any policy")
    option("--policy", default="fd-kvc", metavar="KEY", help="default: %(default)s")
    option("--parameter", required=True, metavar="NAME", help="such as gamma")
    option("--values", nargs="+", metavar="X", help="default: as the Ablation page suggests")
    option("--second", metavar="NAME", help="another one, at once")
    option("--second-values", nargs="+", metavar="X", help="default: as the page suggests")
    option("--scenario", default="mixed", metavar="KEY", help="default: %(default)s")
    _add_dialogs(option, replace(DIALOGS, default=200))
    _add_metrics(option)
    option("--out", required=True, metavar="DIR", help="write sweep.csv and run.json there")

    option = command(
        "report", _report, "write one HTML file to hand over: claims, tables, figures, moments"
    )
    option(
        "--run",
        dest="run_file",
        metavar="FILE",
        help="a run.json to measure again; default: the paper's run",
    )
    option(
        "--dialogs",
        nargs="?",
        const="",
        metavar="FILE",
        help="report on dialogs that people said instead; default: two of the project's own",
    )
    option(
        "--answers",
        nargs="?",
        const="",
        metavar="FILE",
        help="report on what a small language model answers in them, instead or as well",
    )
    _add_calls(option)
    _add_place(option)
    option("--out", required=True, metavar="FILE", help="the file to write: report.html")
    option = command("tune", _tune, "search hyperparameters of any policy, for several goals")
    option("--policy", default="fd-kvc", metavar="KEY", help="default: %(default)s")
    option("--names", nargs="+", default=[], metavar="NAME", help="what to search; default: all")
    option(
        "--metrics",
        nargs="+",
        default=["retention", "diversity"],
        metavar="KEY",
        help="one goal each; default: retention diversity",
    )
    option("--scenarios", nargs="+", metavar="KEY", help="default: the benchmark's five")
    option("--trials", type=_number, default=200, metavar="N", help="default: %(default)s")
    _add_number(option, replace(DIALOGS, default=20, help="Of each scenario, in the search."))
    option(
        "--fresh",
        type=_number,
        default=200,
        metavar="N",
        help="dialogs of each scenario on which what was found is measured; default: %(default)s",
    )
    _add_run(option)
    option(
        "--out",
        required=True,
        metavar="DIR",
        help="write the tables and run.json there, and a journal, from which the search goes on",
    )

    option = command("repeat", _repeat, "run a run.json again and compare the numbers")
    option("file", metavar="FILE", help="a run.json")
    option("--model", metavar="FOLDER", help="that answers were of; default: the bundled one")
    option("--dialogs", metavar="FILE", help="that answers were to; default: as for answers")
    _add_place(option)

    option = command(
        "dialogs", _dialogs, "replay what people said, and measure what the cache still knows of it"
    )
    option(
        "--dialogs",
        metavar="FILE",
        help="SGD or MultiWOZ 2.2, chat messages, ShareGPT, OpenAI batch requests, or text with a "
        "speaker before each turn",
    )
    option("--trace", metavar="FILE", help="a trace file of a model, instead")
    _add_calls(option)
    option(
        "--policies",
        nargs="+",
        metavar="KEY",
        help="default: the paper's four and random; a variant is fd-kvc:gamma=0.8",
    )
    option(
        "--budgets",
        nargs="+",
        type=_number,
        metavar="N",
        help=f"each {BUDGET.allowed(int)}; default: 32 48 64 96 128",
    )
    option(
        "--heads",
        nargs="+",
        metavar="HOW",
        help="each for itself, together by the mean of their scores, kv for together with those "
        "that share a head of keys, or several; default: kv where heads share keys, else each",
    )
    _add_more_metrics(option, "the evidence")
    option("--baseline", metavar="KEY", help="default: h2o, or the first policy if it is not run")
    _add_number(option, replace(SEED, help="Of the lexical embedding."))
    option("--out", metavar="DIR", help="write the tables as CSV, and replay.json, to this folder")

    option = command("capture", _capture, "record what a model attends to while it reads dialogs")
    option("--model", required=True, metavar="NAME", help="a folder, or a name that it is known by")
    option("--dialogs", metavar="FILE", help="as for dialogs; default: two of the project's own")
    _add_calls(option)
    option("--layer", required=True, type=_number, metavar="L", help="whose attention, from 0")
    option("--heads", nargs="+", type=_number, metavar="N", help="default: all of the layer")
    option(
        "--reads",
        default="words",
        metavar="HOW",
        help="words: what is said, names: after each speaker's name, or chat: by the model's own "
        "chat template; default: %(default)s",
    )
    option(
        "--surprisal",
        default="words",
        metavar="BY",
        help="what says how surprising a token is. words: how rare its word is, or model: the "
        "model, if it predicts tokens; default: %(default)s",
    )
    option(
        "--half",
        action="store_true",
        help="write 16 bits a number where they can say all: half of the size",
    )
    option("--out", required=True, metavar="FILE", help="the trace file to write: trace.npz")

    option = command(
        "answers", _answers, "let a language model answer under policies, and measure what it loses"
    )
    option(
        "--model", metavar="FOLDER", help="of the Llama layout, and small; default: the bundled one"
    )
    _add_answers(option)
    _add_place(option)
    option("--out", required=True, metavar="DIR", help="write all tables and run.json there")

    option = command(
        "live", _live, "the same of a model of your own, through transformers; and what it costs"
    )
    option("--model", required=True, metavar="FOLDER", help="any causal model that it knows")
    _add_answers(option)
    option("--pool", default="mean", metavar="HOW", help="heads together by the mean, or max")
    option(
        "--positions",
        default="kept",
        metavar="HOW",
        help="kept: what stays keeps its rotary positions, or slots: it closes up; default: kept",
    )
    option(
        "--trace",
        action="store_true",
        help="write trace.npz, too: all layers under the first policy and budget; without --every",
    )
    option("--out", required=True, metavar="DIR", help="write all tables and run.json there")

    option = command("trace", _trace, "run one policy on one dialog and write all that happened")
    option("--scenario", metavar="KEY", help="default: mixed")
    option(
        "--schedule",
        metavar="LETTERS",
        help=f"a dialog of your own, a topic a turn, at most {MAX_TURNS}: AAABBBCC",
    )
    option("--policy", default="fd-kvc", metavar="KEY", help="default: fd-kvc")
    option("--set", nargs="+", default=[], metavar="NAME=X", help="hyperparameters of the policy")
    _add_more_metrics(option, "the paper's three")
    _add_run(option)
    option("--out", required=True, metavar="DIR", help="write entries.csv and turns.csv there")
    return parser


def _add_dialogs(option: Callable[..., Any], dialogs: Field = DIALOGS) -> None:
    _add_number(option, dialogs)
    _add_place(option)
    _add_run(option)


def _add_calls(option: Callable[..., Any]) -> None:
    option(
        "--calls",
        action="store_true",
        help="put the text of each tool call, name and arguments, before the words of its turn, as "
        "a model reads it",
    )


def _add_answers(option: Callable[..., Any]) -> None:
    option("--dialogs", metavar="FILE", help="as for dialogs; default: two of the project's own")
    option(
        "--policies",
        nargs="+",
        metavar="KEY",
        help="default: the paper's four, random, and cut-text, which reads the last tokens afresh",
    )
    option(
        "--budgets",
        nargs="+",
        type=_number,
        metavar="N",
        help=f"entries of a KV head, each {BUDGET.allowed(int)}; default: 48 96",
    )
    option(
        "--decides",
        default="head",
        metavar="WHO",
        help="head: each KV head for itself, layer: its heads together, or model: all of them; "
        "default: %(default)s",
    )
    option(
        "--every",
        type=_number,
        metavar="N",
        help="evict after every so many tokens of what the model writes, too",
    )
    option("--baseline", metavar="KEY", help="default: full, which evicts nothing")


def _add_place(option: Callable[..., Any]) -> None:
    _add_number(option, WORKERS, "the machine's cores")
    option("--dask", metavar="ADDRESS", help="of a Dask scheduler; its cluster runs the dialogs")


def _add_choice(option: Callable[..., Any]) -> None:
    option("--scenarios", nargs="+", metavar="KEY", help="default: the paper's, with adaptation")
    option(
        "--policies",
        nargs="+",
        metavar="KEY",
        help="default: the paper's four; a variant is fd-kvc:gamma=0.8",
    )
    _add_metrics(option)


def _add_metrics(option: Callable[..., Any]) -> None:
    option(
        "--metrics",
        nargs="+",
        metavar="KEY",
        help="default: the paper's three; others cost more, such as attention_loss or regret",
    )


def _add_more_metrics(option: Callable[..., Any], beside: str) -> None:
    option(
        "--metrics",
        nargs="+",
        default=[],
        metavar="KEY",
        help=f"beside {beside}, such as attention_loss or regret",
    )


def _add_run(option: Callable[..., Any]) -> None:
    _add_number(option, SEED)
    _add_number(option, BUDGET)


def _add_number(option: Callable[..., Any], known: Field, default: str = "%(default)s") -> None:
    what = known.help[0].lower() + known.help[1:].rstrip(".")
    option(
        f"--{known.name}",
        type=_number,
        default=known.default,
        metavar="N",
        help=f"{what}: {known.allowed(known.kind)}; default: {default}",
    )


def _number(text: str) -> int | float | str:
    """Read a number, a whole one as such; a text that is none stays one."""
    number = read_number(text, int)
    return read_number(text) if isinstance(number, str) else number


# ------------------------------------------------------------------------------- the commands


def _chosen_benchmark(settings: Any) -> Benchmark:
    """Return the benchmark that is asked for; its workers start while other things are loaded."""
    from fdkvc.experiments.benchmark import Benchmark, start_workers
    from fdkvc.files.options import settings_from

    benchmark = settings_from(Benchmark, settings)
    if settings.dask is None:
        start_workers(benchmark, settings.workers)
    return benchmark


@contextmanager
def _place(settings: Any) -> Iterator[dict[str, Any]]:
    """Give what tells a run where its dialogs run."""
    if settings.dask is None:
        yield {"workers": settings.workers}
    elif settings.workers is not None:
        raise ValueError("--dask and --workers do not go together: give one of them")
    else:
        from fdkvc.experiments.cluster import dask_cluster

        with dask_cluster(settings.dask) as (executor, workers):
            yield {"executor": executor, "workers": workers}


def _study(settings: Any) -> None:
    settings.baseline = None
    _benchmark(settings, whole=True)


def _benchmark(settings: Any, whole: bool = False) -> None:
    benchmark = _chosen_benchmark(settings)
    from fdkvc.experiments.benchmark import check_baseline, default_baseline
    from fdkvc.experiments.study import run_study
    from fdkvc.files.export import benchmark_files
    from fdkvc.files.text import benchmark_text
    from fdkvc.files.write import check_folder

    baseline = settings.baseline
    if baseline is None:
        baseline = default_baseline(benchmark.policies)
    check_baseline(baseline, benchmark.policies)
    if settings.out is not None:
        check_folder(settings.out)
    _tell_idle(benchmark.policies)

    with _place(settings) as place, _progress() as on_progress:
        study = run_study(benchmark, whole=whole, **place, on_progress=on_progress)
    if whole:
        from fdkvc.files.studies import study_files, study_text

        files, text = study_files(study), study_text(study)
    else:
        files = benchmark_files(study.results, study.latencies, baseline)
        text = benchmark_text(study.results, study.latencies, baseline)
    _written(settings, files, text)


def _sweep(settings: Any) -> None:
    from fdkvc.experiments.sweep import Sweep, read_values, suggested_values
    from fdkvc.files.options import settings_from
    from fdkvc.files.studies import sweep_files
    from fdkvc.files.text import sweep_text
    from fdkvc.policies import read_policy

    policy = read_policy(settings.policy)
    names = [(settings.parameter, settings.values)]
    if settings.second is not None:
        names.append((settings.second, settings.second_values))
    elif settings.second_values is not None:
        raise ValueError("--second-values goes with --second: name what the values are of")
    axes = tuple(
        (
            name,
            suggested_values(policy.name, name)
            if values is None
            else read_values(" ".join(values), policy.name, name, len(values)),
        )
        for name, values in names
    )
    sweep = settings_from(Sweep, settings, policy=policy.name, axes=axes)
    _tell_idle([policy])
    results = _swept(settings, sweep.benchmark)
    _written(settings, sweep_files(sweep, results), sweep_text(sweep, results))


def _tune(settings: Any) -> None:
    from pathlib import Path
    from time import perf_counter

    from fdkvc.experiments.tuning import Tuning, tune
    from fdkvc.files.options import settings_from
    from fdkvc.files.studies import tuning_files
    from fdkvc.files.text import tuning_text
    from fdkvc.files.write import check_folder

    tuning = settings_from(Tuning, settings)
    check_folder(settings.out)
    _tell_idle([tuning.policy])
    began = perf_counter()
    with _progress() as on_progress:
        tuned = tune(tuning, Path(settings.out) / "journal.log", on_progress)
    files = tuning_files(tuning, tuned, perf_counter() - began)
    _written(settings, files, tuning_text(tuned))


def _ablation(settings: Any) -> None:
    from fdkvc.experiments.sweep import Sweep
    from fdkvc.files.export import ablation_files
    from fdkvc.files.options import settings_from
    from fdkvc.files.text import ablation_text
    from fdkvc.paper.tables import ABLATED_POLICY, published_sweep
    from fdkvc.parameters import parameters_of
    from fdkvc.policies import POLICIES

    parameter, known = settings.parameter, parameters_of(POLICIES[ABLATED_POLICY])
    if parameter not in known:
        raise ValueError(f"parameter {parameter!r} is unknown: choose from {', '.join(known)}")
    values = settings.values or published_sweep(parameter)
    if not values:
        raise ValueError(
            f"the paper does not sweep {parameter}, so give the values to try with --values"
        )
    sweep = settings_from(Sweep, settings, axes=((parameter, tuple(values)),))
    results = _swept(settings, sweep.alone)
    _written(settings, ablation_files(results, parameter), ablation_text(results, parameter))


def _swept(settings: Any, benchmark: Benchmark) -> Results:
    from fdkvc.experiments.benchmark import run_benchmark
    from fdkvc.files.write import check_folder

    check_folder(settings.out)
    with _place(settings) as place, _progress() as on_progress:
        return run_benchmark(benchmark, **place, on_progress=on_progress)


def _report(settings: Any) -> None:
    from pathlib import Path

    from fdkvc.files.write import check_folder, write_files

    out = Path(settings.out)
    if out.suffix != ".html":
        raise ValueError(f"--out must name a file that ends in .html, not {settings.out!r}")
    check_folder(out.parent, [out.name])
    with _place(settings) as place, _progress() as on_progress:
        text = _reported(settings, {**place, "on_progress": on_progress})
    write_files(out.parent, {out.name: text})
    _print(f"{len(text.encode()) / 1e6:.1f} MB", settings.out)


def _reported(settings: Any, place: Mapping[str, Any]) -> str:
    """Return the report that is asked for."""
    from fdkvc.report.document import dialogs_report, papers_report, study_report

    if settings.dialogs is not None or settings.answers is not None:
        if settings.run_file is not None:
            raise ValueError("--run does not go with --dialogs or --answers: give one of them")
        if settings.calls and settings.dialogs is None:
            raise ValueError("--calls goes with --dialogs: a model that answers always reads calls")
        parts = []
        if settings.dialogs is not None:
            parts = _reported_dialogs(settings.dialogs, settings.calls)
        if settings.answers is not None:
            parts += _reported_answers(settings.answers, place)
        return dialogs_report(parts)
    if settings.calls:
        raise ValueError("--calls goes with --dialogs: a benchmark's dialogs have no calls")
    recordings, _ = _said(None)
    if settings.run_file is None:
        return papers_report(recordings)
    from fdkvc.corpora.formats import read_bytes
    from fdkvc.experiments.study import run_study
    from fdkvc.files.record import read_run
    from fdkvc.limits import MAX_RUN_JSON_BYTES

    record = read_run(read_bytes(settings.run_file, MAX_RUN_JSON_BYTES), "benchmark", "study")
    return study_report(run_study(record.benchmark, **place), recordings)


def _reported_dialogs(file: str, calls: bool) -> list[Part]:
    from time import perf_counter

    from fdkvc.experiments.benchmark import default_baseline
    from fdkvc.experiments.replay import Replay, replay
    from fdkvc.files.export import replay_files
    from fdkvc.report.document import replay_parts

    recordings, sha = _said(file, calls)
    asked, began = Replay(), perf_counter()
    baseline = default_baseline(asked.policies)
    replayed = replay(asked, recordings)
    files = replay_files(
        *(asked, replayed, baseline),
        source=recordings[0].source,
        file=sha,
        seed=SEED.default,
        seconds=perf_counter() - began,
    )
    return replay_parts(asked, replayed, recordings, baseline, SEED.default, files)


def _reported_answers(file: str, place: Mapping[str, Any]) -> list[Part]:
    from fdkvc.experiments.answers import FULL, Answers
    from fdkvc.report.document import answers_parts

    asked = Answers()
    said = _transcripts(argparse.Namespace(dialogs=file or None))
    model, trained_on = _language_model(None)
    told, files = _answered(asked, FULL, model, said, place, trained_on)
    return answers_parts(asked, told, model.name, files)


def _said(file: str | None, calls: bool = False) -> tuple[Sequence[Recording], str]:
    """Return the dialogs of a file, or the project's own, as lexical recordings; and its digest."""
    import hashlib

    from fdkvc.corpora.lexical import lexical_recording

    transcripts, content = _transcripts(argparse.Namespace(dialogs=file or None), calls)
    recordings = [lexical_recording(each, SEED.default) for each in transcripts]
    return recordings, hashlib.sha256(content).hexdigest()


def _repeat(settings: Any) -> None:
    from pathlib import Path

    from fdkvc.corpora.formats import read_bytes
    from fdkvc.files.record import read_run
    from fdkvc.files.repeat import NOTHING_COMPARED, compare, comparison_sentence
    from fdkvc.limits import MAX_RUN_JSON_BYTES

    record = read_run(read_bytes(settings.file, MAX_RUN_JSON_BYTES))
    if not record.digests:
        raise ValueError(NOTHING_COMPARED)
    with _place(settings) as place, _progress() as on_progress:
        files = _again(settings, record, {**place, "on_progress": on_progress})
    record = record.with_folder(Path(settings.file).parent)
    comparison = compare(record, files)
    if not comparison.repeated:
        raise ValueError(comparison_sentence(record, comparison))
    _print(f"Repeated: {comparison_sentence(record, comparison)}.", None)


def _again(settings: Any, record: Record, place: Mapping[str, Any]) -> Mapping[str, str]:
    """Run what a record is of, and return its files."""
    from fdkvc.experiments.benchmark import run_benchmark
    from fdkvc.experiments.study import run_study
    from fdkvc.experiments.tuning import tune
    from fdkvc.files.export import benchmark_files
    from fdkvc.files.studies import study_files, sweep_files, tuning_files

    ran = record.settings
    match record.kind:
        case "answers":
            return _answers_again(settings, record, place)
        case "search":
            return tuning_files(ran, tune(ran, on_progress=place["on_progress"]))
        case "study":
            return study_files(run_study(ran, **place))
        case "sweep":
            return sweep_files(ran, run_benchmark(ran.benchmark, **place))
        case _:
            return benchmark_files(run_benchmark(ran, **place), [], record.baseline)


def _answers_again(settings: Any, record: Record, place: Mapping[str, Any]) -> Mapping[str, str]:
    """Run answers as a record says, with the model and the dialogs that it was of."""
    import hashlib

    model, trained_on = _language_model(settings.model)
    if model.digest != record.about["model"].get("digest"):
        raise ValueError("the run was of another model: name its folder with --model")
    said = _transcripts(settings)
    if hashlib.sha256(said[1]).hexdigest() != record.about["file"]:
        raise ValueError("the run read another file of dialogs: name it with --dialogs")
    return _answered(record.settings, record.baseline, model, said, place, trained_on)[1]


def _dialogs(settings: Any) -> None:
    from time import perf_counter

    from fdkvc.experiments.benchmark import check_baseline, default_baseline
    from fdkvc.experiments.replay import Replay, default_heads, replay
    from fdkvc.explain.unsaid import unsaid
    from fdkvc.files import export
    from fdkvc.files.options import settings_from
    from fdkvc.files.text import replay_text
    from fdkvc.files.write import check_folder, write_files

    asked = settings_from(Replay, settings)
    baseline = settings.baseline
    if baseline is None:
        baseline = default_baseline(asked.policies)
    check_baseline(baseline, asked.policies)
    if settings.out is not None:
        check_folder(settings.out)

    recordings, transcripts, file = _recordings(settings)
    if settings.heads is None:
        asked = replace(asked, heads=(default_heads(recordings[0]),))
    _tell_idle(asked.policies, speakers=True, words=True, heads=len(recordings[0].heads))
    began = perf_counter()
    with _progress() as on_progress:
        replayed = replay(asked, recordings, on_progress=on_progress)
    if settings.out is not None:
        files = export.replay_files(
            asked,
            replayed,
            baseline,
            source=recordings[0].source,
            file=file,
            seed=settings.seed,
            seconds=perf_counter() - began,
        )
        write_files(settings.out, files)
    text = f"{recordings[0].source}\n\n{replay_text(replayed)}"
    _print("\n\n".join([text, *unsaid(transcripts)]), settings.out)


def _answers(settings: Any) -> None:
    from fdkvc.files.text import answers_text

    asked, baseline = _chosen_answers(settings)
    model, trained_on = _language_model(settings.model)
    said = _transcripts(settings)
    shape = model.decoder.shape
    _tell_idle(asked.policies, speakers=True, words=True, heads=shape.heads, layers=shape.layers)
    with _place(settings) as place, _progress() as on_progress:
        place["on_progress"] = on_progress
        told, files = _answered(asked, baseline, model, said, place, trained_on)
    _written(settings, files, f"{model.name}\n\n{answers_text(told)}")


def _language_model(folder: str | None) -> tuple[LanguageModel, frozenset[str]]:
    """Return a small language model, the bundled one by default, and what it was trained on."""
    from fdkvc.lm import BUNDLED, BUNDLED_SERVICES
    from fdkvc.lm.language_model import load_language_model

    if folder is None:
        return load_language_model(BUNDLED), BUNDLED_SERVICES
    return load_language_model(folder), frozenset()


def _answered(
    asked: Answers,
    baseline: str,
    model: AnyModel,
    said: tuple[Sequence[Transcript], bytes],
    place: Mapping[str, Any],
    trained_on: frozenset[str] = frozenset(),
    more: Mapping[str, object] | None = None,
) -> tuple[AnswersTables, dict[str, str]]:
    """Let a model answer dialogs, and return the tables and the files of that.

    Parameters
    ----------
    said : (sequence of Transcript, bytes)
        The dialogs, and the content of their file.
    trained_on : frozenset of str
        The services that the model knows.
    more : mapping, optional
        As for `fdkvc.files.export.answers_files`.
    """
    import hashlib
    from time import perf_counter

    from fdkvc.experiments.answers import run_answers
    from fdkvc.experiments.proxies import answers_tables
    from fdkvc.files.export import answers_files

    began = perf_counter()
    measured = run_answers(asked, model, _readable(model, said[0]), **place)
    told = answers_tables(measured, baseline, trained_on)
    file, seconds = hashlib.sha256(said[1]).hexdigest(), perf_counter() - began
    beside: Any = {"model": model, "file": file, "seconds": seconds, "more": more}
    return told, answers_files(asked, measured, told, **beside)


def _chosen_answers(settings: Any) -> tuple[Answers, str]:
    """Return what is asked for of answers, and the baseline."""
    from fdkvc.experiments.answers import CUT_TEXT, FULL, Answers
    from fdkvc.files.options import settings_from
    from fdkvc.files.write import check_folder
    from fdkvc.policies import read_policy

    chosen: dict[str, Any] = {}
    if settings.policies is not None:
        policies = [key for key in settings.policies if key != CUT_TEXT]
        chosen = {"policies": tuple(map(read_policy, policies))}
        chosen["cut_text"] = CUT_TEXT in settings.policies
    asked = settings_from(Answers, settings, **chosen)
    baseline = FULL if settings.baseline is None else settings.baseline
    if baseline not in asked.names:
        raise ValueError(
            f"baseline {baseline!r} is not among the policies: choose from {', '.join(asked.names)}"
        )
    check_folder(settings.out)
    return asked, baseline


def _live(settings: Any) -> None:
    from fdkvc.corpora.trace_file import trace_bytes
    from fdkvc.experiments.answers import encode_dialog
    from fdkvc.files.export import csv_text
    from fdkvc.files.text import answers_text, cost_text

    asked, baseline = _chosen_answers(settings)
    if not asked.policies:
        raise ValueError("live needs at least one policy besides cut-text")
    if settings.trace and asked.every is not None:
        raise ValueError(
            "--trace and --every do not go together: what a trace holds are turns, whole ones"
        )
    try:
        from fdkvc.live.cache import check_within_a_cache
        from fdkvc.live.cost import measure_cost
        from fdkvc.live.loop import load_live
        from fdkvc.live.recorded import record_dialog
    except ImportError as error:
        raise ValueError(
            f"live needs the packages of requirements-capture.txt: {error.name} is missing"
        ) from None
    for policy in asked.policies:
        check_within_a_cache(policy)
    model = load_live(settings.model, pool=settings.pool, positions=settings.positions)
    _tell_idle(asked.policies, heads=2, layers=2)  # several, however many there are
    transcripts, content = _transcripts(settings)
    transcripts = _readable(model, transcripts)
    with _progress() as on_progress:
        place = {"workers": 1, "on_progress": on_progress}
        said = transcripts, content
        told, tables = _answered(asked, baseline, model, said, place, more=model.about)
    read = ([each.ids for each in encode_dialog(model, transcript)] for transcript in transcripts)
    turns = max(read, key=lambda dialog: sum(map(len, dialog)))
    cases = asked.policies, asked.budgets
    cost = measure_cost(model, *cases, turns, decides=asked.decides, every=asked.every)
    files: dict[str, str | bytes] = {**tables, "live_cost.csv": csv_text(cost)}
    left: list[str] = []
    if settings.trace:
        chosen = asked.policies[0], asked.budgets[0], asked.decides
        recorded, left = _captured(
            lambda each: record_dialog(model, *chosen, each, encode_dialog(model, each)),
            transcripts,
        )
        if recorded:
            files["trace.npz"] = trace_bytes(recorded)
    title = "\n".join(filter(None, [model.name, model.left]))
    text = f"{title}\n\n{answers_text(told)}\n\n\n{cost_text(cost)}{_left_out(left)}"
    _written(settings, files, text)


def _capture(settings: Any) -> None:
    from pathlib import Path

    from fdkvc.corpora.capture import READS, SURPRISAL, load_capture_model, record
    from fdkvc.corpora.trace_file import trace_bytes
    from fdkvc.files.write import check_folder, write_files
    from fdkvc.words import count

    out = Path(settings.out)
    if out.suffix != ".npz":
        raise ValueError(f"--out must name a file that ends in .npz, not {settings.out!r}")
    READS.check(settings.reads, "reads")
    SURPRISAL.check(settings.surprisal, "surprisal")
    check_folder(out.parent, [out.name])
    transcripts, _ = _transcripts(settings, settings.calls)
    asked = (settings.reads, settings.surprisal)
    model = load_capture_model(settings.model, settings.layer, settings.heads, *asked)
    recordings, left = _captured(lambda each: [record(model, each)], transcripts, settings.half)
    if not recordings:
        raise ValueError(left[0])
    write_files(out.parent, {out.name: trace_bytes(recordings, settings.half)})
    first = recordings[0]
    tokens = sum(recording.starts[-1] for recording in recordings)
    text = (
        f"{first.source}: {count(len(recordings), 'dialog')}, {tokens} tokens, "
        f"{count(len(first.heads), 'head')} of {first.keys.shape[2]} dimensions"
    )
    _print(text + _left_out(left), settings.out)


def _readable(model: AnyModel, transcripts: Sequence[Transcript]) -> Sequence[Transcript]:
    """Return the dialogs that a model can read; say which are left out, and why."""
    from fdkvc.experiments.answers import readable

    found, left = readable(model, transcripts)
    if left:
        _say(_left_out(left).lstrip())
    return found


def _left_out(left: Sequence[str]) -> str:
    """Say which dialogs are left out, and why."""
    if not left:
        return ""
    more = [f"and {len(left) - MOST_LEFT} more"] if len(left) > MOST_LEFT else []
    return "\n  ".join(["\n\nLeft out:", *left[:MOST_LEFT], *more])


def _captured(
    record: Callable[[Transcript], Sequence[Recording]],
    transcripts: Sequence[Transcript],
    half: bool = False,
) -> tuple[list[Recording], list[str]]:
    """Return what could be recorded and goes into one file, and why the rest was left out."""
    from time import perf_counter

    from fdkvc.corpora.trace_file import trace_size
    from fdkvc.experiments.benchmark import Progress

    began = perf_counter()
    recordings: list[Recording] = []
    left: list[str] = []
    grown = None
    with _progress() as on_progress:
        for done, transcript in enumerate(transcripts, start=1):
            try:
                found = record(transcript)
            except ValueError as mistake:
                left.append(str(mistake))
            else:
                for each in found:
                    own = trace_size(each, half)
                    grown = own if grown is None else grown + own
                if grown is not None and grown.refusal:
                    left.append(f"{transcript.name} and what follows: {grown.refusal}")
                    break
                recordings += found
            title = f"{done} of {len(transcripts)} dialogs"
            on_progress(Progress(done, len(transcripts), title, perf_counter() - began))
    return recordings, left


def _transcripts(settings: Any, calls: bool = False) -> tuple[Sequence[Transcript], bytes]:
    """Return the dialogs that are asked for, and the content of their file; say which are not."""
    from fdkvc.corpora.formats import EXAMPLES, read_bytes, read_dialogs
    from fdkvc.explain.unsaid import unread
    from fdkvc.limits import MAX_DIALOG_FILE_BYTES

    name = EXAMPLES / "dialogues.json" if settings.dialogs is None else settings.dialogs
    content = read_bytes(name, MAX_DIALOG_FILE_BYTES)
    transcripts, left = read_dialogs(content, str(name), calls)
    if left:
        _say(_left_out(left).lstrip())
    for sentence in unread(transcripts):
        _say(sentence)
    return transcripts, content


def _recordings(settings: Any) -> tuple[Sequence[Recording], Sequence[Transcript], str]:
    """Return the recordings that are asked for, their dialogs, and a digest of their file."""
    import hashlib
    from io import BytesIO

    from fdkvc.corpora.formats import read_bytes
    from fdkvc.corpora.lexical import LexicalRecordings
    from fdkvc.corpora.trace_file import read_trace_file
    from fdkvc.limits import MAX_TRACE_BYTES

    recordings: Sequence[Recording]
    if settings.trace is None:
        transcripts, content = _transcripts(settings, settings.calls)
        recordings = LexicalRecordings(transcripts, settings.seed)
    elif settings.dialogs is not None:
        raise ValueError("--dialogs and --trace do not go together: give one of them")
    elif settings.calls:
        raise ValueError("--calls does not go with --trace: what a model has read is recorded")
    else:
        content = read_bytes(settings.trace, MAX_TRACE_BYTES)
        recordings = read_trace_file(BytesIO(content))
        transcripts = [each.transcript for each in recordings]
    return recordings, transcripts, hashlib.sha256(content).hexdigest()


def _trace(settings: Any) -> None:
    from fdkvc.experiments.benchmark import check_different
    from fdkvc.files import export
    from fdkvc.files.text import trace_text
    from fdkvc.files.write import check_folder
    from fdkvc.policies import read_policy
    from fdkvc.run.bounds import check_schedule
    from fdkvc.run.metrics import metric_named
    from fdkvc.run.simulate import simulate
    from fdkvc.synthetic.draw import generate
    from fdkvc.synthetic.scenarios import World

    scenario = _scenario(settings)
    policy, changed = read_policy(settings.policy), _settings(settings.set)
    for name in changed.keys() - policy.settings.keys():
        allowed = ", ".join(policy.settings) or "none"
        raise ValueError(f"{name!r} is not a hyperparameter of {policy.name} (it has: {allowed})")
    texts = [name for name in changed if policy.settings[name].kind is str]
    policy = policy.variant(**changed | {name: str(changed[name]) for name in texts})
    _tell_idle([policy])
    BUDGET.check(settings.budget, "budget")
    SEED.check(settings.seed, "seed")
    export.check_entries(policy, scenario, settings.budget)
    check_different("metric", settings.metrics)
    for key in settings.metrics:
        metric_named(key)
    if "regret" in settings.metrics:
        turns = len(scenario.schedule)
        check_schedule(turns, turns * World().tokens_per_turn, settings.budget)
    check_folder(settings.out)

    dialogs = generate(scenario, 1, settings.seed)
    trace = simulate(policy, dialogs, settings.budget)
    files = export.trace_files(trace, dialogs, settings.metrics)
    title = f"{policy.title} on {scenario.label} ({scenario.schedule}), seed {settings.seed}"
    _written(settings, files, f"{title}\n\n{trace_text(trace, dialogs, settings.metrics)}")


def _scenario(settings: Any) -> Scenario:
    from fdkvc.synthetic.scenarios import custom_scenario, scenario_named

    if settings.schedule is None:
        return scenario_named("mixed" if settings.scenario is None else settings.scenario)
    if settings.scenario is not None:
        raise ValueError(
            f"--scenario {settings.scenario} and --schedule {settings.schedule} do not go "
            "together: give one of them"
        )
    return custom_scenario(settings.schedule)


def _settings(texts: Sequence[str]) -> dict[str, int | float | str]:
    found: dict[str, int | float | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set is {text!r}, but must be NAME=VALUE, such as gamma=0.8")
        if name in found:
            raise ValueError(f"--set gives {name!r} twice")
        found[name] = _number(value)
    return found


# ------------------------------------------------------------------------------- what is seen


def _written(settings: Any, files: Mapping[str, str | bytes], text: str) -> None:
    """Write the files of a command to the folder that it was given, and print its text."""
    from fdkvc.files.write import write_files

    if settings.out is not None:
        write_files(settings.out, files)
    _print(text, settings.out)


def _tell_idle(policies: Sequence[Policy], **known: Any) -> None:
    """Say what of policies changes nothing where no more than this is known."""
    from fdkvc.explain.idle import idle
    from fdkvc.policies.base import Available

    for said in idle(policies, Available(**known)):
        _say(said)


def _print(text: str, folder: str | None) -> None:
    written = "" if folder is None else f"\nWritten to {folder}\n"
    _flush(f"{text}\n{written}")


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """Give a function that shows progress: in one line of a terminal, elsewhere in a new one."""
    terminal = sys.stderr.isatty()
    due = SECONDS_A_LINE

    def show(progress: Progress) -> None:
        nonlocal due
        share = progress.done / progress.total
        text = f"{share:4.0%}  {progress.title}, about {progress.seconds_left:.0f} s left"
        if terminal:
            _say(f"\r\x1b[K{text}", end="")
        elif progress.seconds >= due:
            due = progress.seconds + SECONDS_A_LINE
            _say(text)

    try:
        yield show
    finally:
        if terminal:
            _say("\r\x1b[K", end="")


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for a terminal that has no ±
    sys.exit(main())
