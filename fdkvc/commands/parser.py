"""The options of every command."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import fdkvc
from fdkvc.limits import MAX_TURNS
from fdkvc.parameters import BUDGET, DIALOGS, PORT, SEED, WORKERS, Field, read_number

EXAMPLES = "default: two example dialogs"
FORMATS = (
    "real dialogs: SGD or MultiWOZ 2.2, chat messages, OpenAI responses, Anthropic messages, "
    "τ-bench results, τ²-bench results, ToolTalk, ShareGPT, OpenAI batch requests, or text with a "
    "speaker before each turn"
)
SUGGESTED = "values to try; default: the paper's, or a suggested range"


class _Parser(argparse.ArgumentParser):
    """A parser that raises a ValueError of one sentence, and the options that commands share."""

    def __init__(self, **settings: Any) -> None:
        layout: Any = partial(argparse.HelpFormatter, max_help_position=32, width=100)
        super().__init__(**settings, allow_abbrev=False, formatter_class=layout)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def option(self, name: str, metavar: str, help: str, **more: Any) -> None:
        if more.get("default") is not None:
            help += "; default: %(default)s"
        self.add_argument(name, metavar=metavar, help=help, **more)

    def several(self, name: str, metavar: str, help: str, **more: Any) -> None:
        self.add_argument(name, metavar=metavar, help=help, nargs="+", **more)

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, help=help, action="store_true")

    def number(self, field: Field, what: str) -> None:
        what = f"{what}, {field.allowed(int)}"
        self.option(f"--{field.name}", "N", what, type=read_value, default=field.default)

    def seed_and_budget(self) -> None:
        self.number(SEED, "random seed")
        self.number(BUDGET, "entries in the cache after a turn")

    def workers(self) -> None:
        what = f"processes, {WORKERS.allowed(int)}; default: the number of cores"
        self.option("--workers", "N", what, type=read_value)
        self.option("--dask", "ADDRESS", "use the Dask cluster of this scheduler instead")

    def tools(self) -> None:
        what = "begin each dialog with its tools: those in its file, or those of an SGD schema"
        self.option("--tools", "SCHEMA", what, nargs="?", const="")

    def calls(self) -> None:
        self.flag("--calls", "read tool calls too, before the words of their turn")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="fdkvc" if Path(sys.argv[0]).stem == "fdkvc" else "python -m fdkvc",
        description="See, compare and judge KV-cache eviction policies for dialogs.",
    )
    parser.add_argument("--version", action="version", version=f"fdkvc {fdkvc.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, what: str) -> _Parser:
        return commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")

    metrics = "metrics to compute; slower ones are attention_loss and regret; "
    the_papers = f"{metrics}default: the paper's three"
    policies = "policies to run, also variants such as fd-kvc:gamma=0.8; default: the paper's four"
    tables = "write CSV tables and run.json to this folder"

    app = command("app", "show the dashboard in a browser")
    port = f"port of the server, {PORT.allowed(int)}; default: 8501, or the next free one"
    app.option("--port", "N", port, type=read_value)

    benchmark = command("benchmark", "measure policies on scenarios and compare with the paper")
    benchmark.option("--baseline", "KEY", "policy to compare with; default: h2o, or the first")
    benchmark.option("--out", "DIR", tables)
    study = command("study", "measure and judge all tables, figures and claims of the paper")
    study.option("--out", "DIR", tables, required=True)
    for each in (benchmark, study):
        each.several(
            "--scenarios", "KEY", "scenarios to run; default: the paper's five and adaptation"
        )
        each.several("--policies", "KEY", policies)
        each.several("--metrics", "KEY", the_papers)
        each.number(DIALOGS, "dialogs per scenario")
        each.seed_and_budget()
        each.workers()

    sweep = command("sweep", "sweep one or two hyperparameters of a policy")
    sweep.option("--policy", "KEY", "policy to vary", default="fd-kvc")
    sweep.option("--scenario", "KEY", "scenario to run", default="mixed")
    ablation = command("ablation", "sweep one hyperparameter of FD-KVC, as the paper does")
    ablation.set_defaults(policy="fd-kvc", scenario="mixed", second=None, second_values=None)
    for each in (sweep, ablation):
        each.option("--parameter", "NAME", "hyperparameter, such as gamma or w_c", required=True)
        each.several("--values", "X", SUGGESTED)
        each.number(replace(DIALOGS, default=200), "dialogs per setting")
        each.seed_and_budget()
        each.workers()
    sweep.option("--second", "NAME", "second hyperparameter, in all combinations with the first")
    sweep.several("--second-values", "X", SUGGESTED)
    sweep.several("--metrics", "KEY", the_papers)
    sweep.option("--out", "DIR", "write sweep.csv and run.json to this folder", required=True)
    ablation.option("--out", "DIR", "write ablation.csv to this folder", required=True)

    tune = command("tune", "search hyperparameters of a policy for several goals")
    tune.option("--policy", "KEY", "policy to tune", default="fd-kvc")
    tune.several("--names", "NAME", "hyperparameters to search; default: all", default=[])
    goals = ["retention", "diversity"]
    tune.several("--metrics", "KEY", f"goals; default: {' '.join(goals)}", default=goals)
    tune.several("--scenarios", "KEY", "scenarios to run; default: the paper's five")
    tune.option("--trials", "N", "settings to try", type=read_value, default=200)
    tune.number(replace(DIALOGS, default=20), "dialogs per scenario in the search")
    fresh = "fresh dialogs per scenario to measure what was found"
    tune.option("--fresh", "N", fresh, type=read_value, default=200)
    tune.seed_and_budget()
    resumed = "write tables, run.json and a journal to this folder; a later call resumes from it"
    tune.option("--out", "DIR", resumed, required=True)

    dialogs = command("dialogs", "replay real dialogs and measure what the cache still holds")
    dialogs.option("--dialogs", "FILE", f"{FORMATS}; {EXAMPLES}")
    dialogs.option("--trace", "FILE", "replay a model's trace file instead")
    dialogs.calls()
    dialogs.tools()
    dialogs.several("--policies", "KEY", f"{policies} and random")
    budgets = f"budgets to run, each {BUDGET.allowed(int)}; default: "
    dialogs.several("--budgets", "N", f"{budgets}32 48 64 96 128", type=read_value)
    heads = (
        "each: each head evicts for itself, together: all evict by their mean score, kv: those "
        "with the same keys do; default: kv where heads share keys, else each"
    )
    dialogs.several("--heads", "HOW", heads)
    dialogs.several("--metrics", "KEY", f"{metrics}added to the evidence", default=[])
    dialogs.option("--baseline", "KEY", "policy to compare with; default: h2o, or the first")
    chunk = "read longer turns in parts of N tokens, with an eviction after each"
    dialogs.option("--chunk", "N", chunk, type=read_value)
    dialogs.flag("--pin", "run every policy also with the system prompt pinned, within the budget")
    plan = (
        "say which policy and budget hold 90, 95 and 99 %% of the arguments, in bytes of a model: "
        "llama-3.1-8b, llama-3.1-70b, mistral-7b, qwen2.5-7b, its config.json, or layers x KV "
        "heads x head width x bits; the default budgets are then 64 128 256 512 1024 2048"
    )
    dialogs.option("--plan", "MODEL", plan, nargs="?", const="llama-3.1-8b")
    dialogs.number(SEED, "random seed of the lexical embedding")
    dialogs.workers()
    dialogs.option("--out", "DIR", "write CSV tables and replay.json to this folder")

    learn = command("learn", "fit the weights of the policy learned to dialogs with calls")
    learn.option("--dialogs", "FILE", FORMATS, required=True)
    learn.calls()
    learn.several("--budgets", "N", f"{budgets}32 48 64 96 128", type=read_value)
    learn.number(SEED, "random seed of the split and the sample")
    learn.option("--out", "FILE", "write this file, such as own.json", required=True)

    capture = command("capture", "record what a model attends to while it reads dialogs")
    capture.option("--model", "NAME", "folder of the model, or its name on the hub", required=True)
    capture.option("--dialogs", "FILE", f"{FORMATS}; {EXAMPLES}")
    capture.calls()
    capture.option("--layer", "L", "layer to record, from 0", type=read_value, required=True)
    capture.several("--heads", "N", "heads to record; default: all", type=read_value)
    reads = (
        "words: the model reads the words alone, names: each turn after its speaker's name, chat: "
        "its own chat template"
    )
    capture.option("--reads", "HOW", reads, default="words")
    surprisal = "words: surprisal from word frequencies, model: from the model's predictions"
    capture.option("--surprisal", "BY", surprisal, default="words")
    capture.flag("--half", "store 16-bit numbers where no precision is lost")
    capture.option("--out", "FILE", "write this trace file, such as trace.npz", required=True)

    answers = command("answers", "measure what a language model loses when policies evict")
    small = "folder of a small model of the Llama layout; default: the bundled model"
    answers.option("--model", "FOLDER", small)
    answers.workers()
    live = command("live", "measure the same, and the cost, with any model of transformers")
    live.option("--model", "FOLDER", "folder of any causal model", required=True)
    live.option("--pool", "HOW", "mean or max: how heads that share keys add up", default="mean")
    positions = "kept: rotary positions stay, slots: they are renumbered without gaps"
    live.option("--positions", "HOW", positions, default="kept")
    layers = "write trace.npz too: all layers under the first policy and budget; without --every"
    live.flag("--trace", layers)
    for each in (answers, live):
        each.option("--dialogs", "FILE", f"{FORMATS}; {EXAMPLES}")
        each.tools()
        each.several("--policies", "KEY", f"{policies}, random, and cut-text, which cuts the text")
        each.several("--budgets", "N", f"{budgets}48 96", type=read_value)
        decides = "head: each KV head evicts for itself, layer or model: all of its heads together"
        each.option("--decides", "WHO", decides, default="head")
        each.option("--every", "N", "evict after every N written tokens, too", type=read_value)
        each.option("--baseline", "KEY", "policy to compare with; default: full, without eviction")
        each.option("--out", "DIR", tables, required=True)

    trace = command("trace", "run one policy on one dialog and write every step")
    trace.option("--scenario", "KEY", "scenario to run; default: mixed")
    own = f"your own dialog instead, a topic letter per turn, such as AABBA; at most {MAX_TURNS:,}"
    trace.option("--schedule", "LETTERS", own)
    trace.option("--policy", "KEY", "policy to run", default="fd-kvc")
    trace.several("--set", "NAME=X", "hyperparameters of the policy", default=[])
    trace.several("--metrics", "KEY", f"{metrics}added to the paper's three", default=[])
    trace.seed_and_budget()
    trace.option("--out", "DIR", "write entries.csv and turns.csv to this folder", required=True)

    report = command("report", "write claims, tables, figures and examples as one HTML file")
    run = "run this run.json again and report on it; default: the paper's run"
    report.option("--run", "FILE", run, dest="run_file")
    replayed = f"report on a replay of real dialogs instead; {EXAMPLES}"
    report.option("--dialogs", "FILE", replayed, nargs="?", const="")
    answered = f"report on the bundled model's answers in real dialogs; {EXAMPLES}"
    report.option("--answers", "FILE", answered, nargs="?", const="")
    report.calls()
    report.workers()
    report.option("--out", "FILE", "write this file, such as report.html")
    gallery = "write a folder instead: five scenes, the paper's report and the shipped answers"
    report.option("--gallery", "DIR", gallery)

    repeat = command("repeat", "run a run.json again and compare the numbers")
    repeat.add_argument("file", metavar="FILE", help="run.json to repeat")
    repeat.option("--model", "FOLDER", "model of a run of answers; default: the bundled model")
    repeat.option("--dialogs", "FILE", f"dialogs of a run of answers; {EXAMPLES}")
    repeat.tools()
    repeat.workers()
    return parser


def read_value(text: str) -> int | float | str:
    """Return a number, whole if it can be, or the text if it is none."""
    number = read_number(text, int)
    return read_number(text) if isinstance(number, str) else number
