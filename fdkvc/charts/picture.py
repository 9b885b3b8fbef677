"""Charts as pictures, without a browser."""

import json
from functools import lru_cache
from typing import Literal

from fdkvc.charts.theme import Spec, Theme


def picture(chart: Spec, theme: Theme, width: int, kind: Literal["svg", "png"]) -> bytes:
    """Draw a chart with its data, each panel `width` pixels wide; PNG has two pixels per unit."""
    import vl_convert  # a compiled renderer of some size, loaded only when needed

    drawn = _drawn(json.dumps(_standalone(chart, theme, width), default=float))
    return drawn.encode() if kind == "svg" else bytes(vl_convert.svg_to_png(drawn, scale=2))


@lru_cache(maxsize=8)
def _drawn(text: str) -> str:
    """Draw a specification as SVG, of which a PNG is made; both are often needed."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(text))


def _standalone(chart: Spec, theme: Theme, width: int) -> Spec:
    """Return a chart with what the page adds to it: records of its data, colours and a width."""
    records = {
        name: frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        for name, frame in chart["datasets"].items()
    }
    config = chart["config"] | {
        "axis": {**chart["config"]["axis"], "gridColor": theme.faint, "domainColor": theme.faint},
        "title": {**chart["config"]["title"], "color": theme.ink},
        "view": {"stroke": None},
    }
    whole = {**chart, "datasets": records, "background": theme.paper, "config": config}
    if "vconcat" not in chart:
        return {**whole, "width": width}
    return {**whole, "vconcat": [{**panel, "width": width} for panel in chart["vconcat"]]}
