"""What is imported: by pages the screen alone, and by a command what it needs alone.

Which package may import which is checked by ``lint-imports``, by the contracts of pyproject.toml.
"""

import ast
import sys
from pathlib import Path

import pytest

from tests.command_line import ROOT, ended


@pytest.mark.parametrize(
    "path",
    [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))],
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
        ("fdkvc", ("numpy", "fdkvc.policies")),
        ("fdkvc.core.statistics", ("scipy",)),
        ("fdkvc.commands.main", ("pandas", "scipy", "altair", "streamlit", "numpy")),
        ("fdkvc.commands.kinds", ("altair", "streamlit")),
        # The settings, of which a help takes the options.
        (
            "fdkvc.paper.sweep, fdkvc.conversations.replay, fdkvc.models.answers",
            ("pandas", "scipy"),
        ),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(module: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print([n for n in {heavy} if n in sys.modules])"

    assert ended(sys.executable, "-c", script).stdout.strip() == "[]"
