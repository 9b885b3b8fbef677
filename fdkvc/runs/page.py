"""A self-contained HTML page: it loads nothing from elsewhere."""

from functools import cache
from html import escape
from pathlib import Path

from fdkvc.charts.theme import ROOT

# Only what is in the file may load, so that no mistake can fetch anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@cache
def css(name: str) -> str:
    """Return the rules of a style sheet of this folder."""
    return (Path(__file__).parent / f"{name}.css").read_text("utf-8")


def page(title: str, body: str, style: str = "") -> str:
    """Return a whole page with a title in words, a body in HTML and further CSS."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{ROOT}{css('page')}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
