"""What draws a stage in a browser: its style, and its scripts as `npm run build` bundled them."""

from functools import cache
from pathlib import Path
from typing import Literal

from fdkvc.charts.theme import DARK, LIGHT, Theme

_HERE = Path(__file__).parent


@cache
def style() -> str:
    """Return the style, with the colours of terms and policies of `fdkvc.charts.theme`."""
    rules = "\n".join(_read(f"{name}.css") for name in ("stage", "lanes", "transcript"))
    return f"{rules}\n.stage {{ {_colours(LIGHT)} }}\n.stage.dark {{ {_colours(DARK)} }}"


def _colours(theme: Theme) -> str:
    tints = (f"--tint-{place}: {tint};" for place, tint in enumerate(theme.policies))
    return " ".join([f"--stage-terms: {' '.join(theme.terms)};", *tints])


@cache
def script(name: Literal["stage", "ear"]) -> str:
    """Return a script without imports that exports `mount`: of a stage, or its server messages."""
    return f"{_read(f'bundle/{name}.js')}const {{ mount }} = bundle;\nexport default mount;\n"


def _read(file: str) -> str:
    return (_HERE / file).read_text(encoding="utf-8")
