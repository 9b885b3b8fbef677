"""Charts as pictures, without a browser."""

import json

from fdkvc.charts.theme import Spec, Theme


def picture(chart: Spec, theme: Theme, width: int) -> str:
    """Draw a chart with its data as SVG, `width` pixels wide."""
    import vl_convert  # a compiled renderer of some size, loaded only when needed

    return str(
        vl_convert.vegalite_to_svg(json.dumps(_standalone(chart, theme, width), default=float))
    )


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
    return {
        **chart,
        "datasets": records,
        "background": theme.paper,
        "config": config,
        "width": width,
    }
