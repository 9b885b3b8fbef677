"""Which package may import which: every import is checked against the order of the layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("limits",),
    ("extensions",),
    ("parameters",),
    ("words",),
    ("scripts",),
    ("attention",),
    ("cache",),
    ("dialogs",),
    ("policies",),
    ("synthetic",),
    ("corpora",),
    ("run",),
    ("lm",),
    ("live",),
    ("conformance",),
    ("explain",),
    ("paper",),
    ("experiments",),
    ("replication",),
    ("charts",),
    ("grid",),
    ("files",),
    ("kinds",),
    ("stage",),
    ("report",),
    ("ui",),
)
"""The layers in the order of the data: each may import its own files and the layers above it."""

SEES = {
    "paper": set(),
    "charts": {"limits", "parameters", "words"},
    "commands": {module for layer in LAYERS for module in layer} - {"ui"},
    "__main__": {"commands"},
    "__init__": {module for layer in LAYERS for module in layer} - {"ui"},
    "app": {"ui"},
    "pages": {"ui"},
}
"""Packages that may import less than that, or are outside of the order."""

PACKAGES = {
    "numpy": {module for layer in LAYERS for module in layer} - {"limits", "parameters", "paper"},
    "scipy": {"experiments"},
    "threadpoolctl": {"experiments"},
    "distributed": {"experiments"},
    "pandas": {
        "live",
        "explain",
        "experiments",
        "replication",
        "charts",
        "grid",
        "files",
        "kinds",
        "stage",
        "report",
        "ui",
        "commands",  # a stand-in for it alone
    },
    "altair": {"charts", "ui"},
    "vl_convert": {"charts"},
    "streamlit": {"ui", "app", "pages"},
    "gguf": {"corpora"},
    "jinja2": {"lm"},
    "safetensors": {"corpora", "lm"},
    "tokenizers": {"lm"},
    "llama_cpp": {"live"},
    "torch": {"live", "conformance"},
    "transformers": {"live", "conformance"},
}
"""Which packages may import which third-party package."""


def allowed(module: str) -> set[str]:
    """Return the modules of this project that a module may import."""
    if module in SEES:
        return SEES[module] | {module}
    above: set[str] = set()
    for layer in LAYERS:
        above |= set(layer)
        if module in layer:
            return above
    raise LookupError(f"fdkvc/{module} is in no layer: add it to LAYERS and in fdkvc/README.md")


def place_of(path: Path) -> str:
    """Return the module that a file belongs to, as the tables above name it."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "fdkvc" else parts[0]


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield every name that a module imports anywhere, as its dotted parts.

    Parameters
    ----------
    source : str
    package : tuple of str
        The package the module is in, from which relative imports count.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                yield (*base, alias.name)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in ("__import__", "import_module"):
                yield (name,)


def forbidden(source: str, module: str, package: tuple[str, ...] = ("fdkvc",)) -> list[str]:
    """Return the imports of a module that are not allowed."""
    violations = []
    for first, *rest in imported(source, package):
        if first == "fdkvc":
            if rest and rest[0] not in allowed(module):
                violations.append(f"fdkvc.{rest[0]}")
        elif (first, module) == ("import_module", "__init__"):
            continue  # the public names are loaded on first use
        elif module in ("app", "pages"):
            if first not in ("__future__", "streamlit"):
                violations.append(first)
        elif first not in sys.stdlib_module_names and module not in PACKAGES.get(first, set()):
            violations.append(first)
    return violations


def files() -> list[Path]:
    """Return the package's modules, the app and its pages."""
    return [
        *sorted((ROOT / "fdkvc").rglob("*.py")),
        *ROOT.glob("app.py"),
        *sorted((ROOT / "pages").glob("*.py")),
    ]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_is_above_it(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    package = path.relative_to(ROOT).parts[:-1]

    assert forbidden(source, place_of(path), package) == []


def test_all_files_are_checked_and_every_layer_is_used() -> None:
    places = {place_of(path) for path in files()}

    assert {"parameters", "policies", "run", "commands", "__main__", "__init__"} <= places
    for layer in LAYERS:
        assert set(layer) <= places, f"{layer} is in the table, but no such package exists"


@pytest.mark.parametrize(
    ("source", "module", "expected"),
    [
        ("import numpy as np", "attention", []),
        ("import numpy as np", "parameters", ["numpy"]),
        ("from math import inf", "paper", []),
        ("from fdkvc.parameters import Parameter", "paper", ["fdkvc.parameters"]),
        ("from fdkvc.cache import Cache", "policies", []),
        ("from fdkvc.run.simulate import simulate", "policies", ["fdkvc.run"]),
        ("from fdkvc import run, cache", "policies", ["fdkvc.run"]),
        ("import fdkvc.run.trace", "cache", ["fdkvc.run"]),
        ("from .run.trace import Trace", "cache", ["fdkvc.run"]),
        ("from . import run", "cache", ["fdkvc.run"]),
        ("def later():\n    import pandas", "run", ["pandas"]),
        ("if TYPE_CHECKING:\n    from fdkvc.ui import x", "replication", ["fdkvc.ui"]),
        ("from scipy.stats import t", "experiments", []),
        ("from scipy import stats", "replication", ["scipy"]),
        ("import streamlit as st", "charts", ["streamlit"]),
        ("from fdkvc.run.trace import Trace", "charts", ["fdkvc.run"]),
        ("from fdkvc.ui import fields", "commands", ["fdkvc.ui"]),
        ("import streamlit", "commands", ["streamlit"]),
        ("from fdkvc.run import simulate", "__main__", ["fdkvc.run"]),
        ("import streamlit as st\nfrom fdkvc.ui import fields", "pages", []),
        ("import math\nimport numpy", "pages", ["math", "numpy"]),
        ("from fdkvc.charts import theme", "pages", ["fdkvc.charts"]),
        ("import importlib\nimportlib.import_module('altair')", "cache", ["import_module"]),
        ("import torch", "ui", ["torch"]),
    ],
)
def test_a_forbidden_import_is_found(source: str, module: str, expected: list[str]) -> None:
    assert forbidden(source, module) == expected


def test_relative_imports_count_from_their_package() -> None:
    source = "from .base import Policy\nfrom ..run.simulate import simulate"

    assert forbidden(source, "policies", ("fdkvc", "policies")) == ["fdkvc.run"]


def test_a_package_in_no_layer_is_refused() -> None:
    with pytest.raises(LookupError, match="fdkvc/attic is in no layer"):
        forbidden("import fdkvc.cache", "attic")


@pytest.mark.parametrize(
    "path",
    [path for path in files() if place_of(path) in ("app", "pages")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_pages_leave_the_session_state_to_the_controls(path: Path) -> None:
    names = [
        name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (getattr(node, "attr", None), getattr(node, "id", None))
    ]

    assert "session_state" not in names


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("fdkvc.commands.main", ("pandas", "scipy", "altair", "streamlit", "numpy")),
        ("fdkvc.kinds", ("altair", "streamlit")),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(module: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print([n for n in {heavy} if n in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"
