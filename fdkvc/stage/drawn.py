"""What draws a stage in a browser: its style, and its modules bundled into one script."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from fdkvc.charts.theme import DARK, LIGHT

Kind = Literal["one", "lanes", "transcript"]
"""The module that draws it: one run, several side by side, or the text of a dialog with several."""

_HERE = Path(__file__).parent
_STYLES: dict[Kind, tuple[str, ...]] = {
    "one": ("stage",),
    "lanes": ("stage", "lanes"),
    "transcript": ("stage", "lanes", "transcript"),
}

_TYPES = re.compile(r"^ */\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^import \{ (.+) \} from '\./(\w+)\.js';$", re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?=(?:async )?(?:function|class|const) (\w+|\[[^]]+\]))", re.MULTILINE
)


@cache
def style(kind: Kind) -> str:
    """Return the style, with the colours of terms and policies from the place of all colours."""
    light, dark = (
        f"--stage-terms: {' '.join(theme.terms)}; "
        + " ".join(f"--tint-{at}: {tint};" for at, tint in enumerate(theme.policies))
        for theme in (LIGHT, DARK)
    )
    rules = "\n".join(_read(f"{name}.css") for name in _STYLES[kind])
    return f"{rules}\n.stage {{ {light} }}\n.stage.dark {{ {dark} }}"


@cache
def script(name: str) -> str:
    """Return a module of this folder (a `Kind` or ``ear``) and its imports as one script.

    Each module becomes a function that is called once and returns its exports, so that all other
    names are private; comments with types are left out. The script exports the module's `mount`.
    """
    bundled: dict[str, str] = {}
    _bundle(name, bundled)
    return "\n".join([*bundled.values(), f"const {{ mount }} = ${name};", "export default mount;"])


def _bundle(name: str, bundled: dict[str, str]) -> None:
    """Add a module as a function's call, after those that it imports."""
    source = _TYPES.sub("", _read(f"{name}.js"))
    for _, other in _IMPORT.findall(source):
        if other not in bundled:
            _bundle(other, bundled)
    exported = ", ".join(re.findall(r"\w+", " ".join(_EXPORT.findall(source))))
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = $\2;", source))
    bundled[name] = f"const ${name} = (() => {{\n{body}return {{ {exported} }};\n}})();"


def _read(file: str) -> str:
    return (_HERE / file).read_text(encoding="utf-8")
