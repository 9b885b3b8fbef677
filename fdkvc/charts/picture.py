"""Charts as pictures, without a browser."""

import json

from fdkvc.charts.theme import Spec, Theme


def picture(chart: Spec, theme: Theme, width: int) -> str:
    """Draw a chart with its data as SVG, `width` pixels wide, in colours that a page would add."""
    import vl_convert  # a large compiled renderer, loaded only when needed

    # None for NaN, which JSON does not have.
    records = {}
    for name, frame in chart["datasets"].items():
        cells = frame.astype(object).where(frame.notna(), None)
        records[name] = cells.to_dict(orient="records")
    config = chart["config"] | {
        "axis": {
            **chart["config"]["axis"],
            "gridColor": theme.faint,
            "domainColor": theme.faint,
        },
        "title": {**chart["config"]["title"], "color": theme.ink},
        "view": {"stroke": None},
    }
    added = {"datasets": records, "background": theme.paper, "config": config, "width": width}
    return str(vl_convert.vegalite_to_svg(json.dumps(chart | added, default=float)))
