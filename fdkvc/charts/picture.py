"""Charts as pictures, without a browser."""

from __future__ import annotations

import json
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

    text = json.dumps(spec, default=float)
    if kind == "svg":
        return vl_convert.vegalite_to_svg(text).encode()
    return bytes(vl_convert.vegalite_to_png(text, scale=2))
