"""A name is a noun phrase of what it holds: few are a preposition, a pronoun or a participle."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

EMPTY = """
about above after again all also another any around as asked at back before begun behind beside
between by done drawn each else enough every few found from given gone got had held here how in
inner kept known least left less many mine more most much near needed next none of off on once one
ones only or other others out outer over own past rest said same seen several shown since so some
such taken than that these this those through to told too until up used was way ways well what when
where which while who whole whose with within without worse written yet
"""
"""Words that say nothing of what a value is."""


def test_names_say_what_they_hold() -> None:
    files = [ROOT / "app.py", *(ROOT / "pages").glob("*.py"), *(ROOT / "fdkvc").rglob("*.py")]
    names = [name for file in files for name in bound_names(ast.parse(file.read_text("utf-8")))]
    words = set(EMPTY.split())
    empty_names = [name for name in names if name.strip("_") in words]

    assert len(names) > 10_000
    assert len(empty_names) < 0.02 * len(names), sorted(set(empty_names))


def bound_names(tree: ast.Module) -> list[str]:
    """Return what a module assigns and what its functions take."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.arg)]
    assigned = [node for node in nodes if isinstance(node, ast.Name)]
    stored = [node.id for node in assigned if isinstance(node.ctx, ast.Store)]
    return stored + [node.arg for node in nodes if isinstance(node, ast.arg)]
