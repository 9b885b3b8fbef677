"""Capture: what a real model attends to, recorded from a dialog as the model reads it.

A model of Hugging Face *transformers* reads a dialog turn by turn. Of one layer, the vectors that
its attention works with are recorded as the library's attention interface hands them over: after
positional rotation, and with scaling and grouped heads undone, so that q·k/√h is the model's own
logit for every query head. The embedding of a token is the hidden state that enters the layer.

A causal model reads a turn after all turns before it, through its own cache, which is never
evicted from. An encoder reads the dialog so far, or as much of its end as it can hold, and the
turn's own tokens are recorded from that reading: no token is recorded with knowledge of a later
turn. Its tokens that only frame a text are not recorded; a causal model's first token is.

Needs the packages of ``requirements-capture.txt``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.attention import Floats
from fdkvc.parameters import Parameter, check_parameter
from fdkvc.said.model_folder import check_model_folder
from fdkvc.said.recordings import Recording, Token
from fdkvc.said.transcripts import Transcript, clean_name

INTERFACE = "fdkvc_recorded"
"""The name under which the recording attention is known to the library."""

MOST_PACKED = 16
"""Numbers of a model for each that is stored: quantized weights have several in one."""

Vectors = tuple[Floats, Floats, Floats, Floats]
"""Embeddings (n, d), and queries, keys and values (H, n, h), of n tokens."""


@dataclass
class _Recorder:
    """Attention as the library computes it, with what goes into one layer kept."""

    layer: int
    calls: int = 0
    kept: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
    ) -> Any:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        for name in ("softcap", "position_bias"):
            if settings.get(name) is not None:
                raise ValueError(f"this model's attention has a {name}, which is not recorded")
        number = getattr(module, "layer_idx", None)
        if (self.calls if number is None else number) == self.layer:
            h = query.shape[-1]
            scaling = settings.get("scaling")
            scale = 1.0 if scaling is None else float(scaling) * math.sqrt(h)
            self.kept = {"queries": query * scale, "keys": key, "values": value}
        self.calls += 1
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)

    def take(self, tokens: slice, heads: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Return queries, keys and values (H, n, h) of some of the tokens read last."""
        if not self.kept:
            raise ValueError("this model's attention does not go through the library's interface")
        count = self.kept["queries"].shape[1]
        found = []
        for vectors in self.kept.values():
            every = _numpy(vectors[0])
            group = count // len(every)  # query heads that share a key and value head
            found.append(every[[head // group for head in heads], tokens])
        self.calls, self.kept = 0, {}
        queries, keys, values = found
        if values.shape != keys.shape:
            raise ValueError("this model's values have other dimensions than its keys")
        return queries, keys, values


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model, ready to record.

    Attributes
    ----------
    model, tokenizer : the library's
    causal : bool
        Whether a token sees only those before it.
    heads : tuple of int
        Query heads of the layer.
    prefix, suffix : tuple of int
        Ids of the tokens that the tokenizer puts around a text.
    """

    name: str
    model: Any
    tokenizer: Any
    causal: bool
    layer: int
    heads: tuple[int, ...]
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    recorder: _Recorder

    @property
    def most_tokens(self) -> int:
        """Tokens that the model can hold."""
        known = getattr(self.model.config, "max_position_embeddings", None) or math.inf
        return int(min(known, self.tokenizer.model_max_length, 2**31))


def load_model(name: str, layer: int, heads: Sequence[int] | None = None) -> Model:
    """Load a model, from a folder or by its name.

    Parameters
    ----------
    layer : int
        Whose attention is recorded, from 0.
    heads : sequence of int, optional
        All query heads of the layer by default.

    Raises
    ------
    ValueError
        If the optional packages are missing, the model cannot be loaded or has no such layer or
        head, or it is not one that can be recorded.
    """
    with _one_sentence(name):
        folder = Path(name)
        is_path = folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1
        stored = check_model_folder(folder) if is_path else None
    try:
        import torch
        from transformers import AttentionInterface, AutoConfig, AutoModel, AutoTokenizer
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
        from transformers.utils.logging import disable_progress_bar, set_verbosity_error
    except ImportError as error:
        raise ValueError(
            f"capture needs the packages of requirements-capture.txt: {error.name} is missing"
        ) from None
    disable_progress_bar()
    set_verbosity_error()  # what it says in warnings is said in a sentence, or is no matter
    recorder = _Recorder(layer)
    AttentionInterface.register(INTERFACE, recorder)
    AttentionMaskInterface.register(INTERFACE, sdpa_mask)
    gpu = torch.cuda.is_available()
    with _one_sentence(name):
        config = AutoConfig.from_pretrained(name)
        tokenizer = AutoTokenizer.from_pretrained(name)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"the model {name!r} has both an encoder and a decoder: give one of one")
    if not tokenizer.is_fast:
        raise ValueError(f"the tokenizer of {name!r} does not say where its tokens stand")
    chosen = _chosen(config, layer, heads)
    with _one_sentence(name):
        with torch.device("meta"):  # where nothing is allocated
            described = AutoModel.from_config(config).num_parameters()
        if stored is not None and described > MOST_PACKED * stored:
            raise ValueError(
                f"config.json describes {described:,} numbers, but its weights have {stored:,}"
            )
        model, loaded = AutoModel.from_pretrained(
            name,
            attn_implementation=INTERFACE,
            dtype="auto" if gpu else torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are named below
            output_loading_info=True,
        )
        for key, *_ in sorted(loaded["mismatched_keys"]):
            raise ValueError(f"its weights have another size of {key} than config.json says")
        # What pools the last layer has no part in any attention.
        missing = sorted(key for key in loaded["missing_keys"] if "pooler" not in key)
        if missing:
            raise ValueError(f"its weights lack {missing[0]}, of {len(missing)} that are missing")
        model = model.to("cuda" if gpu else "cpu").eval()
        prefix, suffix = _frame(tokenizer)
    causal = any(getattr(module, "is_causal", False) for module in model.modules())
    return Model(name, model, tokenizer, causal, layer, chosen, prefix, suffix, recorder)


def record(model: Model, transcript: Transcript) -> Recording:
    """Let a model read a dialog, and return what its attention worked with.

    Raises
    ------
    ValueError
        If the dialog is longer than the model can hold, or than the bounds of a recording.
    """
    import torch

    encoded = [_encode(model, turn.text) for turn in transcript.turns]
    if model.causal:
        first = [(number, Token(_token_text(model, number), 0, 0)) for number in model.prefix]
        encoded[0] = first + encoded[0]
    read = _read_causally if model.causal else _read_in_windows
    with torch.inference_mode():
        parts = list(read(model, transcript.name, [[i for i, _ in turn] for turn in encoded]))
    embeddings, queries, keys, values = (list(part) for part in zip(*parts, strict=True))
    return Recording(
        transcript,
        tuple(tuple(token for _, token in turn) for turn in encoded),
        np.concatenate(embeddings),
        np.concatenate(queries, axis=1),
        np.concatenate(keys, axis=1),
        np.concatenate(values, axis=1),
        model.heads,
        source=clean_name(f"{model.name.rstrip('/').rpartition('/')[2]}, layer {model.layer}"),
    )


# ------------------------------------------------------------------------------- reading


def _read_causally(model: Model, name: str, turns: Sequence[list[int]]) -> Iterator[Vectors]:
    """Read turn after turn, with the model's own cache of those before."""
    total = sum(map(len, turns))
    if total > model.most_tokens:
        raise ValueError(f"{name}: {total} tokens, but the model holds at most {model.most_tokens}")
    past = None
    for ids in filter(None, turns):
        output = _forward(model, ids, past_key_values=past, use_cache=True)
        past = output.past_key_values
        # The cache holds more keys than were asked for now: both end with the tokens just read.
        yield _vectors(model, output, slice(-len(ids), None))


def _read_in_windows(model: Model, name: str, turns: Sequence[list[int]]) -> Iterator[Vectors]:
    """Read the dialog up to the end of each turn, or as much of its end as the model can hold."""
    room = model.most_tokens - len(model.prefix) - len(model.suffix)
    so_far: list[int] = []
    for turn, ids in enumerate(turns):
        if len(ids) > room:
            raise ValueError(f"{name}, turn {turn}: {len(ids)} tokens, but the model holds {room}")
        so_far = [*so_far, *ids][-room:]
        if ids:
            output = _forward(model, [*model.prefix, *so_far, *model.suffix])
            end = len(model.prefix) + len(so_far)
            yield _vectors(model, output, slice(end - len(ids), end))


def _forward(model: Model, ids: Sequence[int], **settings: Any) -> Any:
    import torch

    tokens = torch.tensor([list(ids)], device=model.model.device)
    known = model.model.config.get_text_config().vocab_size
    with _one_sentence(model.name, "read a dialog"):
        if max(ids) >= known:
            raise ValueError(f"its tokenizer gives the token {max(ids)}, but it knows {known:,}")
        return model.model(input_ids=tokens, output_hidden_states=True, **settings)


def _vectors(model: Model, output: Any, tokens: slice) -> Vectors:
    embeddings = _numpy(output.hidden_states[model.layer][0, tokens])
    return (embeddings, *model.recorder.take(tokens, model.heads))


def _numpy(vectors: Any) -> Floats:
    array: Floats = vectors.detach().float().cpu().numpy()
    return array


# ------------------------------------------------------------------------------- tokens


def _encode(model: Model, text: str) -> list[tuple[int, Token]]:
    """Return the tokens of a turn, which ends its line, with their ids."""
    line = f"{text}\n"
    encoded = model.tokenizer(line, add_special_tokens=False, return_offsets_mapping=True)
    size = len(text)
    return [
        (number, Token(_token_text(model, number), min(start, size), min(end, size)))
        for number, (start, end) in zip(
            encoded["input_ids"], encoded["offset_mapping"], strict=True
        )
    ]


def _token_text(model: Model, number: int) -> str:
    return clean_name(str(model.tokenizer.convert_ids_to_tokens(number)))


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    if all(special):  # a tokenizer that does not know the letter
        return (), ()
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return tuple(ids[:first]), tuple(ids[last:])


# ------------------------------------------------------------------------------- choices


def _chosen(config: Any, layer: int, heads: Sequence[int] | None) -> tuple[int, ...]:
    """Check the layer and the heads; return the heads."""
    config = config.get_text_config()
    last_layer = Parameter("", "", low=0, high=config.num_hidden_layers - 1)
    check_parameter("layer", last_layer, layer, int)
    count = config.num_attention_heads
    chosen = tuple(range(count)) if heads is None else tuple(heads)
    for head in chosen:
        check_parameter("head", Parameter("", "", low=0, high=count - 1), head, int)
        if chosen.count(head) > 1:
            raise ValueError(f"head {head} is given twice")
    if not chosen:
        raise ValueError("give at least one head")
    return chosen


@contextmanager
def _one_sentence(name: str, act: str = "be loaded") -> Iterator[None]:
    """Turn what the library says of a model that cannot do something into one sentence."""
    try:
        yield
    except Exception as error:  # as many kinds as there are ways to break a model
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"there is no {reason}"
        raise ValueError(f"the model {name!r} cannot {act}: {reason[:200]}") from None
