"""A page of HTML that needs nothing else: it opens from a disk, and asks nobody for anything."""

from __future__ import annotations

from html import escape

from fdkvc.charts.theme import DARK, LIGHT

ACCENTS = ("#a82238", "#f2919a")
"""On light and on dark, as the app has them."""

# Not even a mistake could fetch anything: only what stands in the file is let in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

ROOT = f"""
:root {{
  color-scheme: light dark;
  --ink: light-dark({LIGHT.ink}, {DARK.ink}); --paper: light-dark({LIGHT.paper}, {DARK.paper});
  --faint: light-dark({LIGHT.faint}, {DARK.faint});
  --accent: light-dark({ACCENTS[0]}, {ACCENTS[1]});
  --st-text-color: var(--ink); --st-background-color: var(--paper);
  --st-primary-color: var(--accent); --st-font: system-ui, sans-serif;
}}
body {{ margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.5 var(--st-font); }}
"""


def page(title: str, body: str, style: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
        Words.
    body, style : str
        HTML and CSS.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{ROOT}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
