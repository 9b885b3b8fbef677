"""A stage as one HTML file, with its explanations, that works without a server."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from fdkvc.charts.theme import ROOT
from fdkvc.core.limits import MAX_EXPLAINED_ENTRIES
from fdkvc.player.drawn import script, style
from fdkvc.player.moments import value_sentences, why_sentences
from fdkvc.player.run import StageRun

Sentences = Mapping[str, Sequence[str]]
"""Sentences by turn and token, as ``"3 17"``."""


def sentences_of(
    runs: Sequence[StageRun], entry: int | None, *, lanes: bool = False
) -> Sentences:
    """Return the sentences on each entry in each turn; in `lanes`, a joined text for each run.

    For a large run, only those on `entry`; for a long run, none. In lanes, a piece of a value that
    is needed later has the sentences on the value.
    """
    if any(run.long for run in runs):
        return {}
    pairs: set[tuple[int, int]] = set()
    for run in runs:
        rows = run.entries[["turn", "token"]].itertuples(index=False, name=None)
        pairs.update(rows)
    if len(pairs) * len(runs) > MAX_EXPLAINED_ENTRIES:
        pairs = set()
    if entry is not None:  # also in turns in which it is no longer cached
        pairs |= {(turn, entry) for turn in range(runs[0].dialogs.turns)}
    sentences = {}
    for turn, token in sorted(pairs):
        if lanes:
            texts = [" ".join(value_sentences(run, turn, token)) for run in runs]
        else:
            texts = why_sentences(runs[0], turn, token)
        sentences[f"{turn} {token}"] = texts
    return sentences


def scene_html(
    title: str,
    packed: bytes,
    turn: int,
    entry: int | None,
    sentences: Sentences,
) -> str:
    """Return a stage as a page that opens at a turn, with an entry pinned unless it is None.

    `packed` is from `fdkvc.player.payload`, `sentences` are from `sentences_of`.
    """
    view = {"session": "file", "received": 0, "run": "", "turn": turn, "entry": entry}
    view["sentences"] = []
    compressed = zlib.compress(json.dumps(sentences, separators=(",", ":")).encode(), 9)
    # What the app's server sends, the page holds from the start: a view and all sentences.
    module = (
        f"{_BEGIN}\n"
        f'const alone = {{ sentences: await opened("{_text(compressed)}") }};\n'
        f"const view = {json.dumps(view)};\n"
        "globalThis.fdkvcStage = { view, answer: null, alone, tell: {}, changed: () => {} };\n"
        f"{script('stage')}\n"
        f'const data = bytes("{_text(packed)}");\n'
        "mount({ data, parentElement: document.querySelector('#scene') });"
    )
    body = (
        f"<header><h1>{escape(title)}</h1></header>\n"
        f'<div id="scene"></div>\n<script type="module">\n{module}\n</script>'
    )
    own_style = Path(__file__).with_name("scene.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{ROOT}{style()}{own_style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


# Only what is in the file may load, so that no mistake can fetch anything.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)

_BEGIN = """
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const opened = (text) => new Response(
  new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream('deflate')),
).json();
"""


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
