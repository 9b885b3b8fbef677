"""A stage as one HTML file, with its explanations, that works without a server."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from html import escape

from fdkvc.core.limits import MAX_EXPLAINED_ENTRIES
from fdkvc.player.drawn import script, style
from fdkvc.player.moments import value_sentences, why_sentences
from fdkvc.player.payload import pack
from fdkvc.player.run import StageRun
from fdkvc.runs.page import css, page

Sentences = Mapping[str, Sequence[str]]
"""Sentences by turn and token, as ``"3 17"``."""


def sentences_of(
    runs: Sequence[StageRun], entry: int | None, *, all_entries: bool = True, lanes: bool = False
) -> Sentences:
    """Return the sentences on each entry in each turn; in `lanes`, a joined text for each run.

    For a large run, or unless `all_entries`, only those on `entry`; for a long run, none. In lanes,
    a piece of a value that is needed later has the sentences on the value.
    """
    if any(run.long for run in runs):
        return {}
    pairs: set[tuple[int, int]] = set()
    for run in runs:
        rows = run.entries[["turn", "token"]].itertuples(index=False, name=None)
        pairs.update(rows)
    if not all_entries or len(pairs) * len(runs) > MAX_EXPLAINED_ENTRIES:
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


def moment_html(
    run: StageRun,
    title: str,
    turn: int,
    token: int | None,
    words: str = "",
) -> str:
    """Return a turn of a run as a page, with sentences on one entry only."""
    sentences = sentences_of([run], token, all_entries=False)
    return scene_html(title, pack(run, "moment"), turn, token, sentences, words)


def scene_html(
    title: str,
    packed: bytes,
    turn: int,
    entry: int | None,
    sentences: Sentences,
    words: str = "",
) -> str:
    """Return a stage as a page that opens at a turn, with an entry pinned unless it is None.

    `packed` is from `fdkvc.player.payload`, `sentences` are from `sentences_of`; `words` appear
    above the stage.
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
        f"<header><h1>{escape(title)}</h1>"
        + (f"<p>{escape(words)}</p>" if words else "")
        + f'</header>\n<div id="scene"></div>\n<script type="module">\n{module}\n</script>'
    )
    return page(title, body, f"{style()}{css('scene')}")


_BEGIN = """
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const opened = (text) => new Response(
  new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream('deflate')),
).json();
"""


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
