"""Charts as pictures, without a browser."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Literal

from fdkvc.charts.theme import Spec


def picture(spec: Spec, kind: Literal["svg", "png"]) -> bytes:
    """Draw a standalone chart (`fdkvc.charts.theme.standalone`); PNG has two pixels per unit."""
    import vl_convert  # a compiled renderer of some size, loaded only when needed

    drawn = _drawn(json.dumps(spec, default=float))
    return drawn.encode() if kind == "svg" else bytes(vl_convert.svg_to_png(drawn, scale=2))


@lru_cache(maxsize=8)
def _drawn(text: str) -> str:
    """Draw a specification as SVG, of which a PNG is made; both are often needed."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(text))
