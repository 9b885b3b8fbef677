"""What draws a stage in a browser: its style, its scripts and its first HTML."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal

from fdkvc.charts.theme import DARK, LIGHT, tint_of
from fdkvc.limits import MAX_LANES

Kind = Literal["Stage", "Lanes", "Reader"]
"""The class that draws it: one run, several beside each other, or what was said above several."""


_HERE = Path(__file__).parent
_MORE: dict[Kind, tuple[str, ...]] = {
    "Stage": (),
    "Lanes": ("lanes",),
    "Reader": ("lanes", "transcript"),
}


@cache
def style(kind: Kind) -> str:
    """Return the style, with the colours of terms and policies from the place of all colours."""
    light, dark = (
        f"--stage-terms: {' '.join(theme.terms)}; "
        + " ".join(f"--track-{at}: {tint_of(at, theme)};" for at in range(MAX_LANES))
        for theme in (LIGHT, DARK)
    )
    return f"{_read(kind, 'css')}\n.stage {{ {light} }}\n.stage.dark {{ {dark} }}"


@cache
def script(kind: Kind) -> str:
    """Return a module whose one function, `mount`, draws a run within an element."""
    html = f"const HTML = {json.dumps(read('stage.html'))};\n"
    return f"{html}{_read(kind, 'js')}\nconst Scene = {kind};"


def read(*names: str) -> str:
    """Return files of this folder, one after the other."""
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _read(kind: Kind, ending: str) -> str:
    names = {
        "css": ("stage",),
        "js": ("hub", "record", "marks", "views", "why", "picture", "stage"),
    }[ending]
    return read(*(f"{name}.{ending}" for name in (*names, *_MORE[kind])))
