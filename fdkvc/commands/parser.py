"""The options of every command."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import fdkvc
from fdkvc.core.limits import MAX_SCRIPTED_TURNS
from fdkvc.core.parameters import BUDGET, PORT, SEED, WORKERS, Field, parse_number

RUNS = {
    "app": "commands.app:app",
    "benchmark": "paper.commands:benchmark",
    "sweep": "paper.commands:sweep",
    "dialogs": "verdict.command:dialogs",
    "forgot": "commands.forgot:forgot",
    "answers": "models.command:answers",
    "live": "models.command:live",
    "claim": "models.claim:claim",
    "trace": "paper.commands:trace",
    "repeat": "commands.repeat:repeat",
}
"""The function of each command, which is imported once the command is chosen."""

SETTINGS = {
    "benchmark": "paper.benchmark:Benchmark",
    "sweep": "paper.sweep:Sweep",
    "dialogs": "conversations.replay:Replay",
    "answers": "models.answers:Answers",
    "live": "models.answers:Answers",
}
"""The settings of a command, whose fields are options, too."""

SUGGESTED = "values to try; default: the paper's, or a suggested range"
BASELINE = "policy to compare with; default: h2o, else the first"
TABLES = "write CSV tables and run.json to this folder"
SMALL_MODEL = "folder or GGUF file, smollm2, or a stored model such as ollama:qwen2.5:0.5b"
COUNTED = (
    "count sizes in the tokens of this model, of which only the tokenizer is read: a folder, a "
    "GGUF file, or ollama:NAME, hf:NAME or lmstudio:NAME"
)
READ_DIALOGS = ("dialogs", "answers", "live", "claim")
ANY_MODEL = (
    "folder of any causal model, GGUF file, smollm2, or a stored model (ollama:…, hf:…)"
)


class _Parser(argparse.ArgumentParser):
    """A parser that raises a ValueError of one sentence, and the options that commands share."""

    commands: dict[str, _Parser]

    def __init__(self, **settings: Any) -> None:
        layout: Any = partial(argparse.HelpFormatter, max_help_position=32, width=100)
        super().__init__(**settings, allow_abbrev=False, formatter_class=layout)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the options of the command that is chosen, and parse the arguments."""
        args = [*(sys.argv[1:] if args is None else args)]
        if args and args[0] in self.commands:
            _add_settings(args[0], self.commands[args[0]])
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            file = options.command in READ_DIALOGS and not unknown[0].startswith("-")
            name = "; name a file with --dialogs" if file else ""
            error = f"unrecognized arguments: {' '.join(unknown)}{name}"
            self.commands[options.command].error(error)
        return options

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def option(self, name: str, metavar: str, help: str, **settings: Any) -> None:
        if settings.get("default") is not None:
            help += "; default: %(default)s"
        self.add_argument(name, metavar=metavar, help=help, **settings)

    def several(self, name: str, metavar: str, help: str, **settings: Any) -> None:
        self.add_argument(name, metavar=metavar, help=help, nargs="+", **settings)

    def flag(self, name: str, help: str) -> None:
        self.add_argument(name, help=help, action="store_true")

    def number(self, field: Field, description: str) -> None:
        description = f"{description}, {field.allowed(int)}"
        self.option(
            f"--{field.name}", "N", description, type=parse_number, default=field.default
        )

    def workers(self) -> None:
        description = f"worker processes, {WORKERS.allowed(int)}; default: the number of cores"
        self.option("--workers", "N", description, type=parse_number)

    def tools(self) -> None:
        self.flag("--tools", "begin each dialog with the tools that its file lists")


def _add_settings(command: str, parser: _Parser) -> None:
    """Add the options of formats and settings, whose modules import NumPy, which is slow."""
    if command in READ_DIALOGS:
        from fdkvc.conversations.formats import FORMATS

        names = ", ".join(dict.fromkeys(format.label for format in FORMATS.values()))
        parser.option("--dialogs", "FILE", f"dialogs: {names}; default: two example dialogs")
    if command in SETTINGS:
        from fdkvc.runs.options import add_options

        add_options(parser, resolve_name(f"fdkvc.{SETTINGS[command]}"))


def build_parser() -> _Parser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="fdkvc" if Path(sys.argv[0]).stem == "fdkvc" else "python -m fdkvc",
        description="See, compare and judge KV-cache eviction policies for dialogs.",
    )
    parser.add_argument("--version", action="version", version=f"fdkvc {fdkvc.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, description: str) -> _Parser:
        return commands.add_parser(
            name, help=description, description=f"{description[0].upper()}{description[1:]}."
        )

    parser.commands = commands.choices

    app = command("app", "open the app in a browser")
    port = f"port of the server, {PORT.allowed(int)}; default: 8501, or the next free one"
    app.option("--port", "N", port, type=parse_number)
    app.several(
        "--model", "FOLDER", "folders or GGUF files of Llama models that pages may load"
    )

    benchmark = command(
        "benchmark", "measure policies on scenarios and compare with the paper"
    )
    benchmark.option("--baseline", "KEY", BASELINE)
    benchmark.flag(
        "--all", "measure all of the paper's tables, figures and claims, and compare"
    )
    benchmark.workers()
    benchmark.option("--out", "DIR", TABLES)

    sweep = command("sweep", "sweep a hyperparameter of a policy")
    sweep.option("--policy", "KEY", "policy to sweep", default="fd-kvc")
    sweep.option("--parameter", "NAME", "hyperparameter, such as gamma or w_c", required=True)
    sweep.several("--values", "X", SUGGESTED)
    sweep.workers()
    sweep.option("--out", "DIR", TABLES, required=True)

    dialogs = command("dialogs", "replay real dialogs and measure what the cache still holds")
    dialogs.flag("--calls", "include tool calls, before the words of their turn")
    dialogs.tools()
    dialogs.option("--baseline", "KEY", BASELINE)
    dialogs.flag("--pin", "run each policy that allows it also with the system prompt pinned")
    plan = (
        "recommend a way to fit the dialogs and its size in tokens, for the cache of a model: "
        "llama-3.1-8b, llama-3.1-70b, mistral-7b, qwen2.5-7b, a config.json, or layers x KV heads "
        "x head width x bits; the default policies are then what engines do and the best measured, "
        "each at the smallest size that holds enough"
    )
    dialogs.option("--plan", "MODEL", plan, nargs="?", const="llama-3.1-8b")
    target = "share of needed values to keep: 90, 95 or 99; default: 95"
    dialogs.option("--target", "PERCENT", target)
    today_help = (
        "what a plan says of today, as WAY or WAY:TOKENS, such as ollama:8192; WAY is ollama, "
        "llama.cpp, llama.cpp-shift, streaming-llm, anthropic or langchain; default: ollama"
    )
    dialogs.option("--today", "WAY", today_help)
    reads = "let this model count tokens and read a few dialogs under the ways of a plan"
    dialogs.option("--model", "FOLDER", f"{reads}: {SMALL_MODEL}")
    dialogs.option("--tokens", "MODEL", f"{COUNTED}; default: of --model, or SmolLM2's")
    minutes = "how long that model may read for a plan, on two cores with smollm2; default: 1"
    dialogs.option("--minutes", "N", minutes, type=parse_number)
    dialogs.flag("--tables", "print all tables")
    dialogs.flag("--json", "print the results for a script")
    dialogs.number(SEED, "random seed of the lexical embedding")
    dialogs.workers()
    dialogs.option("--out", "DIR", TABLES)

    forgot = command(
        "forgot", "say what a coding agent's session forgot when it was compacted"
    )
    log = "log of Claude Code, Codex, pi, Copilot CLI, Gemini CLI or opencode, or a folder of "
    log += "them; default: an example"
    forgot.add_argument("file", metavar="SESSION", nargs="?", help=log)
    forgot.several("--ways", "POLICY", "policies to compare; default: five ways")
    middle = (
        "tokens that the other ways keep, by default those that stayed; a session without "
    )
    middle += "compactions is cut at its middle"
    forgot.option("--at", "N", middle, type=parse_number)
    forgot.option("--tokens", "MODEL", f"{COUNTED}; default: SmolLM2's")
    dollars = (
        "dollars for a million tokens written to a prefix cache, read from it, and answered"
    )
    lifetime = "a fourth number is the minutes that the cache lives"
    defaults = "default: 6.25,0.5,25,5 (Claude Opus 5)"
    forgot.option("--prices", "W,R,O[,M]", f"{dollars}; {lifetime}; {defaults}")
    forgot.flag("--json", "print JSON, with all losses")
    forgot.option("--out", "FILE.svg", "also draw what was lost, by project or by compaction")
    forgot.flag("--without-words", "write values as their kind and length")

    answers = command("answers", "measure what a model's answers lose when policies evict")
    answers.option("--model", "FOLDER", f"{SMALL_MODEL}; default: the bundled model")
    answers.workers()
    live = command("live", "measure what answers lose in any transformers model")
    live.option("--model", "FOLDER", ANY_MODEL, required=True)
    live.option("--engine", "NAME", "transformers or llama.cpp", default="transformers")
    positions = "kept: rotary positions stay; slots: they are renumbered without gaps"
    live.option("--positions", "HOW", positions, default="kept")
    for measured in (answers, live):
        measured.tools()
        baseline = "policy to compare with; default: full, without eviction"
        measured.option("--baseline", "KEY", baseline)
        measured.option("--out", "DIR", TABLES, required=True)

    claim = command(
        "claim", "compare a policy in a file of yours with the leading ways, in a model"
    )
    claim.add_argument("file", metavar="FILE", help="Python file with one class, your policy")
    claim.option("--model", "FOLDER", SMALL_MODEL, default="smollm2")
    claim.number(replace(BUDGET, default=128), "entries that a KV head may hold after a turn")
    decides_help = (
        "who evicts: head, each KV head on its own; layer or model, all its heads together"
    )
    claim.option("--decides", "WHO", decides_help, default="model")
    dialogs_help = "dialogs to draw from the file"
    claim.option("--count", "N", dialogs_help, type=parse_number, default=30)
    claim.tools()
    claim.option("--out", "FILE", "write the table to this file, such as claim.csv")

    trace = command("trace", "run one policy on one synthetic dialog and write every step")
    trace.option("--scenario", "KEY", "scenario to run; default: mixed")
    longest = f"up to {MAX_SCRIPTED_TURNS:,} turns, a letter each"
    schedule = f"your own schedule instead, such as AABBA: {longest}"
    trace.option("--schedule", "LETTERS", schedule)
    trace.option(
        "--policy", "KEY", "policy to run, such as fd-kvc:gamma=0.8", default="fd-kvc"
    )
    metrics = "metrics to compute, added to the paper's three"
    trace.several("--metrics", "KEY", metrics, default=[])
    trace.number(SEED, "random seed")
    trace.number(BUDGET, "most entries in the cache after a turn")
    files = "write entries.csv, turns.csv and README.md to this folder"
    trace.option("--out", "DIR", files, required=True)

    repeat = command("repeat", "repeat the run of a run.json and compare the numbers")
    repeat.add_argument("file", metavar="FILE", help="run.json to repeat")
    repeat.option("--model", "FOLDER", "model that the run measured; default: the bundled one")
    dialogs_help = (
        "dialogs that it read; default: the file that it names, or two example dialogs"
    )
    repeat.option("--dialogs", "FILE", dialogs_help)
    repeat.tools()
    repeat.workers()
    return parser
