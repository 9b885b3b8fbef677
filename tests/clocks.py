"""Which tests assert what a clock says, found in their syntax trees.

A clock's numbers are followed through names, attributes, containers, functions of the tests and
fixtures. They may end a wait and be divided by each other; a test asserts neither an instant nor
how long something took.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

KINDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
CLOCKS = frozenset(
    (
        *(f"time.{kind}{unit}" for kind in KINDS for unit in ("", "_ns")),
        *("timeit.default_timer", "os.times", "datetime.date.today"),
        *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    )
)
STOPWATCHES = frozenset(("timeit.timeit", "timeit.repeat"))
CPU_TIMES = frozenset(("ru_utime", "ru_stime"))
HAS_CLOCK = re.compile(r"^\s*(import|from) (datetime|os|resource|time|timeit)\b", re.MULTILINE)
PASSING = frozenset(
    (
        *("abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "list", "map", "max"),
        *("min", "next", "pytest.approx", "reversed", "round", "set", "sorted", "sum", "tuple"),
        "zip",
    )
)
"""What returns the numbers that it is given, as do these packages."""
ARITHMETIC = ("math.", "numpy.", "pandas.", "statistics.")
FILLING = frozenset(("add", "append", "appendleft", "extend", "insert", "put"))


class Reading(IntEnum):
    """What a number has of a clock."""

    nothing = 0
    duration = 1
    """A difference of two instants, which another may be compared with."""
    instant = 2
    """An instant, or anything that a number which is no duration was added to."""
    verdict = 3
    """Whether it is late, or took too long."""


def asserting_clocks(sources: Mapping[str, str]) -> list[str]:
    """Return where modules, by their dotted names, assert what a clock says: ``module:line``."""
    words = {name: {*re.findall(r"\w+", source)} for name, source in sources.items()}
    modules = {
        name: _Module(name, text) for name, text in sources.items() if HAS_CLOCK.search(text)
    }
    known, before = _Known(), -1
    while before != (before := known.size()):  # until nothing new is known of any function
        found = [
            f"{module.name}:{line}" for module in modules.values() for line in module.run(known)
        ]
        functions = known.with_clocks()
        for name in sources.keys() - modules.keys():
            if not words[name].isdisjoint(functions):
                modules[name] = _Module(name, sources[name])
                before = -1
    return sorted(found)


def modules_of(root: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """Return the sources of a project's Python files by their dotted names."""
    paths = sorted(path for folder in folders for path in root.glob(folder))
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text("utf-8")
        for path in paths
    }


@dataclass
class _Known:
    """What is known of functions, fixtures and objects of all modules, by dotted names."""

    returned: dict[str, Reading] = field(default_factory=dict)
    given: dict[tuple[str, str], Reading] = field(default_factory=dict)
    """By function and parameter."""
    fixtures: dict[str, Reading] = field(default_factory=dict)
    attributes: dict[tuple[str, str], Reading] = field(default_factory=dict)
    """By class and attribute."""
    parameters: dict[str, list[str]] = field(default_factory=dict)

    def with_clocks(self) -> set[str]:
        """Return the names of functions and fixtures that return what a clock says, or get it."""
        names = {name for name, reading in (self.returned | self.fixtures).items() if reading}
        return {name.rpartition(".")[2] for name in names | {name for name, _ in self.given}}

    def size(self) -> int:
        tables = (self.returned, self.given, self.fixtures, self.attributes)
        return sum(sum(table.values()) for table in tables) + len(self.parameters)


Names = dict[str, Reading]


class _Module:
    """A module that is read from its first statement to its last."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.tree = name, ast.parse(source)
        self.imported = {
            alias.asname or alias.name.partition(".")[0]: (
                f"{node.module}.{alias.name}"
                if isinstance(node, ast.ImportFrom)
                else alias.name
                if alias.asname
                else alias.name.partition(".")[0]
            )
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self.defined = {
            node.name for node in self.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }

    def run(self, known: _Known) -> list[int]:
        """Return the lines that assert what a clock says, and add to what is known."""
        reader = _Reader(self, known)
        for _ in range(2):  # names of a loop's end at its start
            reader.lines.clear()
            reader.statements(self.tree.body)
        return sorted(reader.lines)


class _Reader:
    """Follows readings of clocks through the statements of a scope."""

    def __init__(
        self, module: _Module, known: _Known, names: Names | None = None, inside: str = ""
    ) -> None:
        self.module, self.known, self.inside = module, known, inside
        self.names: Names = {} if names is None else names
        self.objects: dict[str, str] = {}  # the class of a name
        self.lines: set[int] = set()
        self.returned = Reading.nothing
        self.waiting = False

    # ---------------------------------------------------------------------------- statements

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node)
                return
            case ast.ClassDef():
                for member in node.body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                        self.function(member, f"{self.module.name}.{node.name}")
                return
            case ast.Assert():
                self.note(node, self.read(node.test))
                return
            case ast.Return(value=ast.expr() as value):
                self.returned = max(self.returned, self.read(value))
                return
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, value)
            case ast.AugAssign(target=target, value=value):
                self.set(target, max(self.read(target), self.read(value)))
            case ast.For(target=target, iter=values) | ast.AsyncFor(target=target, iter=values):
                self.iterate(target, values)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, item.context_expr)
                    else:
                        self.read(item.context_expr)
            case ast.If(test=test) if (reading := self.read(test)) and _fails(
                [*node.body, *node.orelse]
            ):
                self.note(node, reading)
            case ast.Expr(value=value):
                reading = self.read(value)
                if isinstance(value, ast.BoolOp | ast.IfExp) and _fails([node]):
                    self.note(node, reading)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.read(child)
        outside = self.waiting
        self.waiting |= isinstance(node, ast.While) and _waits(node)
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            for child in getattr(node, name, ()):
                self.statements([child] if isinstance(child, ast.stmt) else child.body)
        self.waiting = outside

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str = "") -> None:
        outermost = not (owner or self.inside)
        name = f"{owner or self.inside or self.module.name}.{node.name}"
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = [argument.arg for argument in arguments]
        names = dict(self.names)
        for parameter in parameters:
            fixture = self.known.fixtures.get(parameter, Reading.nothing)
            names[parameter] = self.known.given.get((name, parameter), fixture)
        defaults = node.args.posonlyargs + node.args.args
        for argument, default in [
            *zip(defaults[::-1], node.args.defaults[::-1], strict=False),
            *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
        ]:
            if default is not None:
                names[argument.arg] = max(names[argument.arg], self.read(default))
        inner = _Reader(self.module, self.known, names, owner or name)
        inner.objects = {**self.objects, **({"self": owner} if owner else {})}
        for _ in range(2):
            inner.lines.clear()
            inner.statements(node.body)
        self.lines |= inner.lines
        self.known.parameters[name] = parameters
        self.known.returned[name] = inner.returned
        if any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list):
            self.known.fixtures[node.name] = inner.returned
        elif any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
            self.known.attributes[owner, node.name] = inner.returned
        elif not owner and not outermost:
            self.names[node.name] = inner.returned

    def note(self, node: ast.AST, reading: Reading) -> None:
        if reading == Reading.verdict and not self.waiting:
            self.lines.add(node.lineno)  # type: ignore[attr-defined]

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Name a value."""
        if isinstance(target, ast.Name) and isinstance(value, ast.Call):
            self.objects[target.id] = self.dotted(value.func)
        reading = self.read(value)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, its in zip(target.elts, value.elts, strict=False):
                self.set(part, self.read(its))
        else:
            self.set(target, reading)

    def iterate(self, target: ast.expr, values: ast.expr) -> None:
        """Name what is iterated over; numbers and keys beside it are of no clock."""
        parts = target.elts if isinstance(target, ast.Tuple) else []
        readings = [self.read(values)] * len(parts)
        match values:
            case ast.Call(func=ast.Name(id="zip"), args=columns) if len(columns) == len(parts):
                readings = [*map(self.read, columns)]
            case ast.Call(func=ast.Name(id="enumerate") | ast.Attribute(attr="items")) if parts:
                readings[0] = Reading.nothing
        for part, reading in zip(parts or [target], readings or [self.read(values)], strict=True):
            self.set(part, reading)

    def set(self, target: ast.expr, reading: Reading) -> None:
        match target:
            case ast.Name(id=name):
                self.names[name] = reading
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.set(part, reading)
            case ast.Starred(value=value):
                self.set(value, reading)
            case ast.Subscript(value=value):
                self.set(value, max(self.read(value), reading))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in self.objects:
                place = self.objects[name], attribute
                known = self.known.attributes.get(place, reading)
                self.known.attributes[place] = max(known, reading)

    # --------------------------------------------------------------------------- expressions

    def read(self, node: ast.expr) -> Reading:
        """Return what an expression has of a clock."""
        nothing = Reading.nothing
        match node:
            case ast.Name() | ast.Attribute() if self.dotted(node) in CLOCKS | STOPWATCHES:
                return Reading.instant
            case ast.Name(id=name):
                return self.names.get(name, nothing)
            case ast.Attribute(attr=attribute) if attribute in CPU_TIMES:
                return Reading.instant
            case ast.Attribute(value=value, attr=attribute):
                named = self.objects.get(value.id, "") if isinstance(value, ast.Name) else ""
                return self.known.attributes.get((named, attribute), self.read(value))
            case ast.Call():
                return self.call(node)
            case ast.BinOp(left=left, op=operator, right=right):
                return _combined(self.read(left), operator, self.read(right))
            case ast.Compare():
                return self.compared(node)
            case ast.NamedExpr(target=target, value=value):
                self.bind(target, value)
                return self.read(value)
            case ast.Lambda(body=body):
                return self.read(body)
            case ast.Yield(value=ast.expr() as value):
                self.returned = max(self.returned, self.read(value))
                return nothing
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.Await(value=value):
                return self.read(value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for part in node.generators:
                    self.iterate(part.target, part.iter)
                return self.read(node.value if isinstance(node, ast.DictComp) else node.elt)
            case ast.Dict(values=values):
                return max(map(self.read, values), default=nothing)
            case ast.List() | ast.Tuple() | ast.Set() | ast.BoolOp() | ast.UnaryOp() | ast.IfExp():
                parts = [
                    child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
                ]
                return max(map(self.read, parts), default=nothing)
        return nothing

    def call(self, node: ast.Call) -> Reading:
        name, arguments = self.dotted(node.func), [*node.args, *(k.value for k in node.keywords)]
        readings = [self.read(argument) for argument in arguments]
        most = max(readings, default=Reading.nothing)
        if name in STOPWATCHES:
            return Reading.duration
        if name in CLOCKS:
            return Reading.instant
        if name.rpartition(".")[2].startswith("assert") and not _alike(readings):
            self.note(node, Reading.verdict if most else most)
        if isinstance(node.func, ast.Attribute) and node.func.attr in FILLING and most:
            self.set(node.func.value, max(self.read(node.func.value), most))
        if name.rpartition(".")[2] in ("allclose", "isclose"):
            return Reading.verdict if most else most
        if name in PASSING or name.startswith(ARITHMETIC):
            return most
        parameters = self.known.parameters.get(name, [])
        named = [keyword.arg or "" for keyword in node.keywords]
        for parameter, reading in zip(
            [*parameters[: len(node.args)], *named], readings, strict=False
        ):
            if reading and parameters:
                place = name, parameter
                self.known.given[place] = max(self.known.given.get(place, reading), reading)
        return max(self.known.returned.get(name, Reading.nothing), self.read(node.func))

    def compared(self, node: ast.Compare) -> Reading:
        operands = [node.left, *node.comparators]
        if any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            return Reading.nothing
        if any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops):
            operands = [node.left]
        readings = [self.read(operand) for operand in operands]
        if _alike(readings) and len(readings) > 1:
            return Reading.nothing
        return Reading.verdict if any(readings) else Reading.nothing

    def dotted(self, node: ast.expr) -> str:
        """Return the dotted name of what is called, as imported; empty for anything else."""
        match node:
            case ast.Name(id=name) if name in self.module.defined:
                return f"{self.module.name}.{name}"
            case ast.Name(id=name):
                return "" if name in self.names else self.module.imported.get(name, name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in self.objects:
                return f"{self.objects[name]}.{attribute}"
            case ast.Attribute(value=value, attr=attribute) if owner := self.dotted(value):
                return f"{owner}.{attribute}"
        return ""


def _combined(left: Reading, operator: ast.operator, right: Reading) -> Reading:
    """Return what an operation leaves of a clock."""
    if isinstance(operator, ast.Div | ast.FloorDiv) and left and right:
        return Reading.nothing
    if isinstance(operator, ast.Sub) and left == right == Reading.instant:
        return Reading.duration
    if isinstance(operator, ast.Add | ast.Sub) and left != right:
        return Reading.instant
    return max(left, right)


def _alike(readings: list[Reading]) -> bool:
    """Whether durations are compared with each other alone."""
    return bool(readings) and all(reading == Reading.duration for reading in readings)


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in body for node in ast.walk(statement))


def _called(node: ast.AST) -> str:
    """Return the last part of the name of what is called; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return ast.unparse(node.func).rpartition(".")[2]


def _fails(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Raise | ast.Assert) or _called(node) == "fail" for node in _walk(body)
    )


def _waits(loop: ast.While) -> bool:
    """Whether a loop lets time pass."""
    return any("sleep" in _called(node) or "wait" in _called(node) for node in _walk(loop.body))
