"""The vectors that policies see of a dialog: those of letters, or a model's as it reads it."""

from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Unpack

import numpy as np
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.page.files import DialogFile
from fdkvc.core.limits import MAX_READ_MEGABYTES
from fdkvc.core.parameters import Field, check_most
from fdkvc.core.recordings import Recording
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import count_tokens, read_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.page.loading import LABELS, MODELS
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.ui import fields
from fdkvc.ui.fields import problems
from fdkvc.ui.lru import Shelf, cached
from fdkvc.ui.run_panel import run_panel, shared_jobs

LETTERS = "lexical"
AT_ONCE = "bundled"
"""The model that is small enough to read a dialog while the page waits."""


VECTORS = Field(
    "Vectors",
    "What policies that look at attention see of a word in the transcript: a vector computed from "
    "its letters, or what a model computes as it reads the dialog.",
    name="vectors",
    default=LETTERS,
    choices={LETTERS: "Letters of words", **LABELS},
)
KV_HEAD = Field(
    "KV head",
    "The head whose cache is shown; the query heads that share its keys decide together.",
    name="kv",
    default=0,
    low=0,
    high=100_000,
)


class NotReadError(Exception):
    """A model has not read the dialog yet."""


@dataclass(frozen=True)
class DialogToRead:
    """A dialog that a model reads."""

    key: str
    """The file's."""
    dialog: int
    model: str
    file: DialogFile = field(compare=False, repr=False)

    @property
    def title(self) -> str:
        """The model's name."""
        return VECTORS.labels.get(self.model, self.model).partition(",")[0]


@dataclass(frozen=True, eq=False)
class ReadDialog:
    """A dialog that a model has read."""

    heads: Mapping[int, str]
    """The label of each KV head, by its number in the model."""
    recordings: tuple[Recording, ...]
    """That of each head."""


READ: Shelf[ReadDialog] = Shelf()
"""What models have read."""


def read_heads(reading: DialogToRead, **execution: Unpack[Execution]) -> ReadDialog | None:
    """Let a model read a dialog, and keep what its heads computed; None once it is cancelled.

    Raises a ValueError if the model cannot be loaded, or the dialog is too long.
    """
    on_progress = execution.get("on_progress")
    cancelled = execution.get("cancelled")
    began = perf_counter()

    def report(units_done: float, total: float, title: str) -> None:
        if on_progress is not None:
            on_progress(
                Progress(round(units_done), round(total), title, perf_counter() - began)
            )

    model = shared_language_model(
        MODELS[reading.model],
        lambda share: report(100 * share, 100, f"Loading {reading.title}"),
    )
    shape = model.decoder.shape
    began = perf_counter()
    # Three layers of other models: the vectors of all would fill memory.
    quarter_layers = sorted({part * shape.layers // 4 for part in (1, 2, 3)})
    layers = range(shape.layers) if reading.model == AT_ONCE else quarter_layers
    token_bytes = 4 * (shape.width + (shape.heads + 2 * shape.kv_heads) * shape.head_width)
    room = MAX_READ_MEGABYTES * 1_000_000 // (len(layers) * token_bytes)
    transcript = reading.file.transcripts[reading.dialog]
    tokens = count_tokens(model, transcript)
    tokens_read = 0
    check_most(f"{transcript.name}: it has", tokens, "tokens to read", room)

    def on_read(new_tokens: int) -> None:
        nonlocal tokens_read
        tokens_read = min(tokens_read + new_tokens, tokens)
        report(
            tokens_read,
            tokens,
            f"{reading.title} has read {tokens_read:,} of {tokens:,} tokens",
        )
        if cancelled is not None and cancelled.is_set():
            raise CancelledError

    try:
        recordings = tuple(read_dialog(model, transcript, layers, on_read))
    except CancelledError:
        return None
    heads = {}
    for row, head in np.ndindex(len(layers), shape.kv_heads):
        layer = layers[row]
        heads[layer * shape.kv_heads + head] = f"layer {layer}, head {head}"
    read = ReadDialog(heads, recordings)
    READ.put(reading, read)
    return read


@cached
def _read_at_once(reading: DialogToRead) -> ReadDialog:
    read = read_heads(reading)
    assert read is not None
    return read


# ------------------------------------------------------------------------------- controls


def choose_vectors(
    page: str, file: DialogFile, dialog: int, column: DeltaGenerator
) -> Recording | None:
    """Choose a model and a KV head; return the head's recording of a dialog, None for letters.

    Letters also take the place of what cannot be read; `column` says why. Raises a NotReadError
    while the dialog is not read: `column` then has the button to read it, and the progress.
    """
    model = fields.choice(page, VECTORS)
    if model == LETTERS:
        fields.reset(page, (KV_HEAD,))
        return None
    reading = DialogToRead(file.key, dialog, model, file)
    try:
        find_model(str(MODELS[model]))
        read = _read_at_once(reading) if model == AT_ONCE else READ.get(reading)
    except ValueError as error:
        with column:
            problems(f"{error}. Showing letters of words instead.")
        return None
    if read is not None:
        head_field = replace(KV_HEAD, default=next(iter(read.heads)), choices=read.heads)
        head = [*read.heads].index(fields.choice(page, head_field))
        return read.recordings[head]
    with column:
        job = shared_jobs().of(reading)
        if job is not None and job.problem:
            problems(f"{job.problem} Showing letters of words instead.")
            return None
        work = partial(read_heads, reading)
        run_panel(f"{page}/vectors", f"Read this dialog with {reading.title}", work, reading)
    raise NotReadError
