"""The names that a user of the package imports from it."""

import ast
from pathlib import Path

import pytest

import fdkvc


def test_every_public_name_is_loaded_from_where_its_type_is() -> None:
    tree = ast.parse(Path(fdkvc.__file__).read_text("utf-8"))
    types = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fdkvc.")
        for alias in node.names
    }

    assert {name: f"fdkvc.{module}" for name, module in fdkvc._MODULES.items()} == types
    assert set(fdkvc.__all__) == set(types)
    for name in set(types) - {"PolicyCache"}:
        assert getattr(fdkvc, name) is not None


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fdkvc.nothing
