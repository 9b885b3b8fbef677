"""The vectors of a file's words: of their letters, or a model's as it reads the dialogs."""

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple, Unpack

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.page.files import DialogFile
from fdkvc.core.limits import MAX_READ_MEGABYTES
from fdkvc.core.parameters import Field
from fdkvc.core.recordings import Recording
from fdkvc.core.words import count, listed
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import count_tokens, read_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.page.loading import LABELS, MODELS
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.ui import fields
from fdkvc.ui.fields import problems
from fdkvc.ui.lru import Shelf, cached
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import run_panel

LETTERS = "lexical"
AT_ONCE = "bundled"
"""The model that is small enough to read a dialog while the page waits."""


VECTORS = Field(
    "Vectors",
    "What policies see of a word: a vector computed from its letters, or the keys, queries and "
    "hidden states of a model that reads the dialog.",
    name="vectors",
    default=LETTERS,
    choices={LETTERS: "Letters of words", **LABELS},
)
KV_HEAD = Field(
    "KV head",
    "The head whose cache is shown, with the query heads that share its keys.",
    name="kv",
    default=0,
    low=0,
    high=100_000,
)


def label_of(model: str) -> str:
    """Return the name of a model of `fdkvc.models.page.loading`."""
    return VECTORS.labels.get(model, model).partition(",")[0]


@dataclass(frozen=True, eq=False)
class ReadFile:
    """The recordings of dialogs that a model read, by place in the file and then by KV head.

    `heads` has the label of each KV head by its number in the model, `source` names all together,
    and `skipped` says of dialogs why they were not read.
    """

    recordings: Mapping[int, tuple[Recording, ...]]
    source: str
    heads: Mapping[int, str]
    skipped: Mapping[int, str]


class FileReading(NamedTuple):
    """A model that reads the dialogs of a file."""

    key: str
    model: str


READ: Shelf[ReadFile] = Shelf()
"""What models have read, by the file's key and the model."""


def read_file(
    model: str, file: DialogFile, first: int = 0, **execution: Unpack[Execution]
) -> ReadFile:
    """Let a model read a file's dialogs, the `first` before the others, and keep what it computed.

    As many dialogs as `MAX_READ_MEGABYTES` hold; what was read before is returned at once. Raises a
    ValueError if the model cannot be loaded.
    """
    key, places = (file.key, model), range(len(file.transcripts))
    stored = READ.get(key)
    if stored is None or first not in (*stored.recordings, *stored.skipped):
        order = sorted(places, key=lambda dialog: dialog != first)
        stored = _read(model, file, order, **execution)
        READ.put(key, stored)
    return stored


@cached
def _read_at_once(model: str, file: DialogFile, dialog: int) -> ReadFile:
    return _read(model, file, [dialog])


def _read(
    key: str, file: DialogFile, order: Sequence[int], **execution: Unpack[Execution]
) -> ReadFile:
    on_progress, cancelled = execution.get("on_progress"), execution.get("cancelled")
    began, texts, loading = perf_counter(), file.transcripts, f"Loading {label_of(key)}"

    def report(units_done: float, total: float, title: str) -> None:
        if on_progress is not None:
            on_progress(Progress(round(units_done), round(total), title, perf_counter() - began))

    model = shared_language_model(MODELS[key], lambda share: report(100 * share, 100, loading))
    shape, began = model.decoder.shape, perf_counter()
    quarter_layers = sorted({part * shape.layers // 4 for part in (1, 2, 3)})
    layers = range(shape.layers) if key == AT_ONCE else quarter_layers
    of_layer = 4 * (shape.width + (shape.heads + 2 * shape.kv_heads) * shape.head_width)
    room = MAX_READ_MEGABYTES * 1_000_000 // (len(layers) * of_layer)
    counts, skipped = dict[int, int](), dict[int, str]()
    for dialog in order:
        try:
            counts[dialog] = count_tokens(model, texts[dialog])
        except ValueError as error:
            skipped[dialog] = str(error)
            continue
        if sum(counts.values()) > room:
            tokens = f"{counts.pop(dialog):,} tokens in {count(len(layers), 'layer')}"
            limit = f"{MAX_READ_MEGABYTES} MB hold {room:,} of a file"
            skipped[dialog] = f"{texts[dialog].name}: {tokens}, but {limit}"
            break
    tokens_read, total = 0, sum(counts.values())

    def on_read(tokens: int) -> None:
        nonlocal tokens_read
        tokens_read = min(tokens_read + tokens, total)
        report(tokens_read, total, f"{label_of(key)} has read {tokens_read:,} of {total:,} tokens")
        if cancelled is not None and cancelled.is_set():
            raise CancelledError

    recordings: dict[int, tuple[Recording, ...]] = {}
    with suppress(CancelledError):
        for dialog in counts:
            recordings[dialog] = tuple(read_dialog(model, texts[dialog], layers, on_read))
    heads: dict[int, str] = {}
    for layer, head in product(layers, range(shape.kv_heads)):
        heads[layer * shape.kv_heads + head] = f"layer {layer}, head {head}"
    read_layers = f"layer{'' if len(layers) == 1 else 's'} {listed([*map(str, layers)])}"
    source = f"the {model.name} model, mean of the {count(len(heads), 'KV head')} of {read_layers}"
    return ReadFile(recordings, source, heads, skipped)


class ReadRecordings(Sequence[Recording]):
    """The first KV head of each dialog that a model read, looked up in `READ` when needed."""

    def __init__(self, model: str, file: DialogFile, read: ReadFile) -> None:
        self._model, self._file, self._source = model, file, read.source
        self.places = sorted(read.recordings)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        place = self.places[index]
        recordings = read_file(self._model, self._file, place).recordings
        return replace(recordings[place][0], source=self._source)


# ------------------------------------------------------------------------------- controls


def choose_vectors(
    page: str, file: DialogFile, dialog: int, column: DeltaGenerator
) -> tuple[str | None, Recording | None]:
    """Choose a model and a KV head; return them with the head's recording of a dialog.

    Both are None for letters, which also take the place of what cannot be read. The recording is
    None while the dialog is not read: `above` then has the button to read it, and the progress.
    """
    model = fields.choice(page, VECTORS)
    if model == LETTERS:
        fields.reset(page, (KV_HEAD,))
        return None, None
    try:
        find_model(str(MODELS[model]))
        if model == AT_ONCE:
            read = _read_at_once(model, file, dialog)
        else:
            read = READ.get((file.key, model)) or ReadFile({}, "", {}, {})
        if dialog in read.skipped:
            raise ValueError(read.skipped[dialog])
    except ValueError as error:
        with column:
            problems(f"{error}. Showing letters of words instead.")
        return None, None
    if dialog in read.recordings:
        head_field = replace(KV_HEAD, default=next(iter(read.heads)), choices=read.heads)
        head = [*read.heads].index(fields.choice(page, head_field))
        return model, read.recordings[dialog][head]
    with column:
        st.info(
            plain(
                f"{label_of(model)} has not read this dialog yet. It reads in the background, at "
                "about 100 tokens per second; the result stays in memory until the app ends."
            ),
            icon=":material/hourglass_empty:",
        )
        work = partial(read_file, model, file, dialog)
        name = f"Read with {label_of(model)}"
        run_panel(f"{page}/vectors", name, work, FileReading(file.key, model))
    return model, None
