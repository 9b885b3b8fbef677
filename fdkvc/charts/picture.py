"""Charts as pictures, without a browser."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Literal

from fdkvc.charts.theme import Spec


def picture(spec: Spec, kind: Literal["svg", "png"]) -> bytes:
    """Draw a chart that needs nothing else (see `fdkvc.charts.theme.standalone`).

    Parameters
    ----------
    kind : {"svg", "png"}
        A PNG has two pixels to the unit.
    """
    import vl_convert  # a compiled renderer of some size, loaded only when a picture is asked for

    drawn = _drawn(json.dumps(spec, default=float))
    return drawn.encode() if kind == "svg" else bytes(vl_convert.svg_to_png(drawn, scale=2))


@lru_cache(maxsize=8)
def _drawn(text: str) -> str:
    """Draw a specification as SVG, of which a PNG is made; both are often asked for."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(text))
