"""Capture: recordings of a model's attention vectors as it reads a dialog.

A model of Hugging Face *transformers* reads a dialog turn by turn. The vectors of one layer are
recorded from the library's attention interface: after positional rotation, with scaling and grouped
heads undone, so that q·k/√h is the model's logit for every query head. Embeddings are the hidden
states that enter the layer. On loading, this is checked against the model's own attention once;
other layers are rejected, as is a dialog in which the layer does not see every earlier token.

A causal model reads each turn with its own full cache of the turns before. An encoder reads the
dialog so far, or as much of its end as fits, and only the turn's tokens are recorded from that
reading, so that no vector depends on a later turn. Special tokens around a text are recorded for
causal models only, and only at the beginning.

Needs the packages of ``requirements-capture.txt``.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.attention import Bools, Floats, softmax
from fdkvc.corpora.gguf_file import as_folder, find_model
from fdkvc.corpora.model_folder import (
    as_model_error,
    as_value_error,
    cache_name,
    check_loaded,
    check_model_folder,
    error_reason,
    stderr_silenced,
)
from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.token_traits import surprisal_in
from fdkvc.corpora.transcripts import Transcript, check_size, clean_name
from fdkvc.limits import MAX_PACKED_WEIGHTS
from fdkvc.parameters import Field, check_count

INTERFACE = "fdkvc_recorded"
"""The name of the recording attention in the library."""

TRIED_TOKENS = 8
"""Tokens of the check when a model is loaded."""

TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05
"""Largest difference between a model's attention weights and recorded ones, and of 16 bits."""

EXTRAS = {
    "softcap": "a softcap",
    "position_bias": "a bias by position",
    "s_aux": "sinks of its own",
    "sinks": "sinks of its own",
}
"""Features of attention that a recording lacks, by their names in the library."""

READS = Field(
    "Reads",
    "What the model reads of a turn.",
    name="reads",
    default="words",
    choices={
        "words": "without speakers' names",
        "names": "with speakers' names",
        "chat": "by its chat template",
    },
)

SURPRISAL = Field(
    "Surprisal",
    "Source of each token's surprisal: the frequency of its word, or the model's prediction.",
    name="surprisal",
    default="words",
    choices={"words": "the frequency of its word", "model": "the model, from all tokens before"},
)

Vectors = tuple[Floats, Floats, Floats, Floats]
"""Embeddings (n, d), and queries, keys and values (H, n, h), of n tokens."""

Read = tuple[Floats, Floats, Floats, Floats, Floats]
"""Those, and the surprisal of the tokens (n,), empty if not requested."""

Encoded = list[tuple[int, Token]]
"""Ids and tokens of a turn."""

ASSISTANT = "assistant"
"""The model's role in chat templates; in a dialog that has it, speakers are roles."""

_MARK = re.compile("\ue000[0-9]+\ue001")
"""Placeholders for the texts of turns while a template is rendered."""


@dataclass
class _Recorder:
    """The library's attention, which keeps the inputs of one layer."""

    layer: int
    calls: int = 0
    module: Any = None
    mask: Any = None
    window: int | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any
    ) -> Any:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        call, self.calls = self.calls, self.calls + 1
        for name, what in EXTRAS.items():
            if settings.get(name) is not None:
                raise ValueError(f"its attention has {what}, which cannot be recorded")
        number = getattr(module, "layer_idx", None)
        if (call if number is None else number) == self.layer:
            if self.kept:  # for example, if one softmax is subtracted from another
                raise ValueError(
                    "it attends more than once in a layer, but a recording has one softmax for each"
                )
            h = query.shape[-1]
            scaling = settings.get("scaling")
            scale = 1.0 if scaling is None else float(scaling) * math.sqrt(h)
            self.module, self.mask = module, attention_mask
            self.window = settings.get("sliding_window")
            self.kept = {"queries": query * scale, "keys": key, "values": value}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)

    def begin(self) -> None:
        """Forget earlier calls."""
        self.calls, self.kept = 0, {}

    def seen(self, causal: bool, total: int) -> Bools:
        """Mark which of `total` tokens each of the last n sees (1 or H, n, total)."""
        count, n = (self.kept[name].shape[2] for name in ("keys", "queries"))
        gone = total - count  # no longer in the model's own cache
        seen = np.tri(n, count, count - n, np.bool_) if causal else np.ones((n, count), np.bool_)
        if self.mask is not None:
            mask = self.mask[0, :, -n:].cpu()
            seen = mask.numpy() if str(mask.dtype) == "torch.bool" else _numpy(mask) == 0
        return np.concatenate([np.zeros((*seen.shape[:-1], gone), np.bool_), seen], axis=-1)

    def take(self, tokens: slice, heads: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Return queries, keys and values (H, n, h) of some of the last tokens."""
        count = self.kept["queries"].shape[1]
        queries, keys, values = (  # query heads in a row share keys and values
            part[[head * len(part) // count for head in heads], tokens]
            for part in (_numpy(vectors[0]) for vectors in self.kept.values())
        )
        if values.shape != keys.shape:
            raise ValueError("the dimensions of this model's values and keys differ")
        return queries, keys, values


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model, ready to record."""

    name: str
    model: Any
    tokenizer: Any
    causal: bool
    """Whether a token sees only those before it."""
    layer: int
    heads: tuple[int, ...]
    """Query heads of the layer."""
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    """Ids that the tokenizer puts around a text."""
    reads: str
    """``words``, ``names`` or ``chat``; see `READS`."""
    predicts_tokens: bool
    """Whether surprisal comes from its predictions; see `SURPRISAL`."""
    recorder: _Recorder

    @property
    def most_tokens(self) -> int:
        """Longest text in tokens."""
        limit = getattr(self.model.config, "max_position_embeddings", None) or math.inf
        return int(min(limit, self.tokenizer.model_max_length, 2**31))


def load_capture_model(
    name: str,
    layer: int,
    heads: Sequence[int] | None = None,
    reads: str = READS.default,
    surprisal: str = SURPRISAL.default,
) -> Model:
    """Load a model, from a folder or GGUF file or by its name; by default all heads of the layer.

    `layer` counts from 0; for `reads` and `surprisal` see `READS` and `SURPRISAL`. Raises a
    ValueError if packages are missing, or the model cannot be loaded or recorded, or has no such
    layer or head.
    """
    READS.check(reads, "reads")
    SURPRISAL.check(surprisal, "surprisal")
    with ExitStack() as stack:
        with as_model_error(name):
            source = stack.enter_context(as_folder(find_model(name)))
        return _load(name, str(source), layer, heads, reads, surprisal)


def _load(
    name: str, source: str, layer: int, heads: Sequence[int] | None, reads: str, surprisal: str
) -> Model:
    with as_model_error(name):
        folder = Path(source)
        is_path = folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1
        stored = check_model_folder(folder) if is_path else None
    try:
        import torch
        from transformers import (
            AttentionInterface,
            AutoConfig,
            AutoModel,
            AutoModelForCausalLM,
            AutoTokenizer,
        )
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
        from transformers.utils.logging import disable_progress_bar, set_verbosity_error
    except ImportError as error:
        raise ValueError(
            f"capture needs {error.name}: install requirements-capture.txt, or the extra "
            "transformers"
        ) from None
    disable_progress_bar()
    set_verbosity_error()  # its warnings are harmless or become errors here
    recorder = _Recorder(layer)
    AttentionInterface.register(INTERFACE, recorder)
    AttentionMaskInterface.register(INTERFACE, sdpa_mask)
    gpu = torch.cuda.is_available()
    with as_model_error(name):
        config = AutoConfig.from_pretrained(source)
        with stderr_silenced():
            tokenizer = AutoTokenizer.from_pretrained(source)
            prefix, suffix = _frame(tokenizer)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"the model {name!r} has both an encoder and a decoder: give a model with one of them"
        )
    if not tokenizer.is_fast:
        raise ValueError(f"the tokenizer of {name!r} does not give the positions of its tokens")
    if reads == "chat" and not tokenizer.chat_template:
        raise ValueError(f"the tokenizer of {name!r} has no chat template")
    chosen = _check_heads(config, layer, heads)
    with as_model_error(name):
        with torch.device("meta"):  # allocates nothing
            described = AutoModel.from_config(config).num_parameters()
        if stored is not None and described > MAX_PACKED_WEIGHTS * stored:
            raise ValueError(
                f"config.json describes {described:,} parameters, but its weights have {stored:,}"
            )
        predicts_tokens = surprisal == "model"
        if predicts_tokens and not (
            type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
            and any(
                kind.endswith(("ForCausalLM", "LMHeadModel")) for kind in config.architectures or ()
            )
        ):
            raise ValueError("it does not predict tokens: take surprisal from words")
        try:
            model, loaded = (
                AutoModelForCausalLM if predicts_tokens else AutoModel
            ).from_pretrained(
                source,
                attn_implementation=INTERFACE,
                dtype="auto" if gpu else torch.float32,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # checked below
                output_loading_info=True,
            )
        except KeyError as error:  # a model with a fixed list of attention implementations
            raise ValueError(_elsewhere(config)) if INTERFACE in error.args else error from None
        check_loaded(loaded, needless="pooler")  # pooling is not used
        model = model.to("cuda" if gpu else "cpu").eval()
    causal = any(getattr(module, "is_causal", False) for module in model.modules())
    parts = (name, model, tokenizer, causal, layer, chosen, prefix, suffix, reads)
    ready = Model(*parts, predicts_tokens=causal and predicts_tokens, recorder=recorder)
    with as_model_error(name, "be recorded"):
        _check_recording(ready)
    return ready


def record(model: Model, transcript: Transcript) -> Recording:
    """Record a dialog as a model reads it.

    Raises a ValueError if the dialog is too long for the model or for a recording.
    """
    import torch

    encoded = _encode_turns(model, transcript)
    check_size(transcript.name, [len(turn) for turn in encoded])  # before reading
    read = _read_causally if model.causal else _read_in_windows
    with torch.inference_mode():
        parts = list(read(model, transcript.name, [[i for i, _ in turn] for turn in encoded]))
    embeddings, queries, keys, values, nats = (list(part) for part in zip(*parts, strict=True))
    tokens = tuple(tuple(token for _, token in turn) for turn in encoded)
    return Recording(
        transcript,
        tokens,
        np.concatenate(embeddings),
        np.concatenate(queries, axis=1),
        np.concatenate(keys, axis=1),
        np.concatenate(values, axis=1),
        model.heads,
        source=clean_name(
            f"{model.name.rstrip('/').rpartition('/')[2]}, layer {model.layer}, "
            f"{READS.labels[model.reads]}{transcript.source_note}"
        ),
        surprisal=np.concatenate(nats) if model.predicts_tokens else _by_words(transcript, tokens),
    )


def _by_words(transcript: Transcript, tokens: Sequence[Sequence[Token]]) -> Floats:
    """Return the surprisal of tokens by word frequency (N,)."""
    nats: list[float] = []
    for text, turn in zip(transcript.texts, tokens, strict=True):
        nats += surprisal_in(text, [(token.start, token.end) for token in turn])
    return np.array(nats, np.float32)


# ------------------------------------------------------------------------------- reading


def _read_causally(model: Model, name: str, turns: Sequence[list[int]]) -> Iterator[Read]:
    total = sum(map(len, turns))
    if total > model.most_tokens:
        raise ValueError(f"{name}: {total} tokens, but the model holds at most {model.most_tokens}")
    past, seen, last, cache = None, 0, None, cache_name(model.model)
    for ids in filter(None, turns):
        output = _forward(model, ids, use_cache=True, **{cache: past})
        past, seen = getattr(output, cache), seen + len(ids)
        _check_sees_all(model, name, seen)
        nats = np.zeros(0, np.float32)
        if model.predicts_tokens:
            nats, last = _surprisal(output.logits[0], ids, last), output.logits[0, -1:]
        # The cache has keys of earlier turns too; it ends with the tokens just read.
        yield (*_vectors(model, output, slice(-len(ids), None)), nats)


def _surprisal(logits: Any, ids: Sequence[int], last: Any) -> Floats:
    """Return −log p of the n `ids` by `logits` (n, V) after each and `last` (1, V) before them."""
    import torch

    before = torch.zeros_like(logits[:1]) if last is None else last
    predicted = torch.cat([before, logits[:-1]]).float().log_softmax(dim=-1)
    return -_numpy(predicted[range(len(ids)), list(ids)])


def _read_in_windows(model: Model, name: str, turns: Sequence[list[int]]) -> Iterator[Read]:
    """Read the dialog up to each turn's end, or as much of its end as fits into the model."""
    room = model.most_tokens - len(model.prefix) - len(model.suffix)
    so_far: list[int] = []
    for turn, ids in enumerate(turns):
        if len(ids) > room:
            raise ValueError(f"{name}, turn {turn}: {len(ids)} tokens, but the model holds {room}")
        so_far = [*so_far, *ids][-room:]
        if ids:
            output = _forward(model, [*model.prefix, *so_far, *model.suffix])
            end = len(model.prefix) + len(so_far)
            _check_sees_all(model, name, end + len(model.suffix))
            yield (*_vectors(model, output, slice(end - len(ids), end)), np.zeros(0, np.float32))


def _check_sees_all(model: Model, name: str, total: int) -> None:
    seen = model.recorder.seen(model.causal, total)
    n = seen.shape[-2]
    if (seen | ~np.tri(n, total, total - n, np.bool_) if model.causal else seen).all():
        return
    config = model.model.config.get_text_config()
    window = model.recorder.window
    only = f", only the last {window:,} tokens" if window and model.causal else ""
    kinds = getattr(config, "layer_types", None) or ()
    whole = [str(layer) for layer, kind in enumerate(kinds) if kind == "full_attention"]
    raise ValueError(
        f"{name}: layer {model.layer} of this model does not see all of it{only}"
        + (f"; those that see all are {', '.join(whole)}" if whole else "")
    )


def _check_recording(model: Model) -> None:
    """Raise a ValueError unless recorded queries and keys reproduce the model's attention."""
    import torch

    recorder = model.recorder
    room = min(TRIED_TOKENS, model.most_tokens, model.model.config.get_text_config().vocab_size)
    ids = torch.arange(room, device=model.model.device)[None]
    eager: list[Any] = []
    elsewhere = _elsewhere(model.model.config)
    with torch.inference_mode():
        try:
            output = model.model(input_ids=ids, output_hidden_states=True)
        except Exception:
            if recorder.calls:
                raise
            raise ValueError(elsewhere) from None
        if not recorder.kept:
            raise ValueError(f"{elsewhere} in layer {model.layer}" if recorder.calls else elsewhere)
        module, seen = recorder.module, recorder.seen(model.causal, room)
        _, queries, keys, _ = _vectors(model, output, slice(None))
        hook = module.register_forward_hook(lambda _module, _given, gives: eager.append(gives[1]))
        model.model.set_attn_implementation("eager")
        model.model(input_ids=ids)
        model.model.set_attn_implementation(INTERFACE)
        hook.remove()
    if eager[0] is None:
        raise ValueError("it does not return its attention weights, so no recording can be checked")
    logits = queries @ keys.swapaxes(1, 2) / np.float32(math.sqrt(keys.shape[2]))
    weights = softmax(np.where(seen, logits, np.float32(-np.inf)))
    difference = np.abs(weights - _numpy(eager[0][0])[list(model.heads)]).max()
    if difference > (TOLERANCE if model.model.dtype.itemsize > 2 else HALF_TOLERANCE):
        raise ValueError("its attention is not the softmax of q·k/√h over what a token sees")


def _elsewhere(config: Any) -> str:
    return (
        f"the attention of a model of type {config.model_type!r} does not go through the "
        "library's interface"
    )


def _forward(model: Model, ids: Sequence[int], **settings: Any) -> Any:
    import torch

    tokens = torch.tensor([list(ids)], device=model.model.device)
    vocabulary = model.model.config.get_text_config().vocab_size
    with as_model_error(model.name, "read a dialog"):
        if max(ids) >= vocabulary:
            raise ValueError(f"its tokenizer gives token {max(ids)}, but it has {vocabulary:,}")
        model.recorder.begin()
        return model.model(input_ids=tokens, output_hidden_states=True, **settings)


def _vectors(model: Model, output: Any, tokens: slice) -> Vectors:
    embeddings = _numpy(output.hidden_states[model.layer][0, tokens])
    return (embeddings, *model.recorder.take(tokens, model.heads))


def _numpy(vectors: Any) -> Floats:
    array: Floats = vectors.detach().float().cpu().numpy()
    return array


# ------------------------------------------------------------------------------- tokens


def _encode_turns(model: Model, transcript: Transcript) -> list[Encoded]:
    if model.reads == "chat":
        return _encode_by_template(model, transcript)
    encoded = []
    for turn in transcript.turns:
        before = f"{turn.speaker}: " if model.reads == "names" else ""
        tokens = _encode(model, f"{before}{turn.text}\n")
        encoded.append([_placed(model, *token, len(before), turn.text) for token in tokens])
    if model.causal:
        first = [_placed(model, number, 0, 0, 0, "") for number in model.prefix]
        encoded[0] = first + encoded[0]
    return encoded


def _encode_by_template(model: Model, transcript: Transcript) -> list[Encoded]:
    """Return the tokens of each turn by the model's chat template.

    Text that the template puts after a turn even if no turn follows belongs to that turn; other
    text between turns belongs to the later one. A turn without words has no tokens.
    """
    turns = [at for at, turn in enumerate(transcript.turns) if turn.text.strip()]
    speakers = [turn.speaker.casefold() for turn in transcript.turns]
    if ASSISTANT not in speakers:
        speakers = ["user" if by == "user" else ASSISTANT for by in transcript.spoken_by]

    def rendered(texts: Sequence[str]) -> str:
        messages = [
            {"role": speakers[at], "content": text} for at, text in zip(turns, texts, strict=False)
        ]
        try:
            return str(model.tokenizer.apply_chat_template(messages, tokenize=False))
        except Exception as error:  # a template is a program
            raise ValueError(
                f"{transcript.name}: its chat template fails: {error_reason(error)}"
            ) from None

    marks = [f"\ue000{at}\ue001" for at in turns]
    between, given = _MARK.split(rendered(marks)), _MARK.findall(rendered(marks))
    if given != marks:
        raise ValueError(
            f"{transcript.name}: its chat template does not give every turn once and in order"
        )
    texts = [transcript.turns[at].text.strip() for at in turns]
    whole = "".join(f"{before}{text}" for before, text in zip(between, [*texts, ""], strict=True))
    if whole != rendered(texts):
        raise ValueError(f"{transcript.name}: its chat template changes the text of a turn")
    starts, lows = [0], []
    for place, text in enumerate(texts):
        # Start of the turn's text, then of what belongs to the next turn.
        lows.append(sum(map(len, (*between[: place + 1], *texts[:place]))))
        closing = _MARK.split(rendered(marks[: place + 1]))[-1]
        closed = between[place + 1].startswith(closing)
        starts.append(lows[-1] + len(text) + (len(closing) if closed else 0))
    encoded: list[Encoded] = [[] for _ in transcript.turns]
    for number, start, end in _encode(model, whole):
        place = bisect_right(starts[:-1], start) - 1
        text = transcript.turns[turns[place]].text
        low = lows[place] - text.index(texts[place])
        encoded[turns[place]].append(_placed(model, number, start, end, low, text))
    return encoded


def _encode(model: Model, text: str) -> Iterator[tuple[int, int, int]]:
    """Yield id, start and end of each token of a text."""
    with as_value_error(f"the tokenizer of {model.name!r} cannot read {text[:40]!r}"):
        encoded = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    for number, place in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        yield (number, *place)


def _placed(
    model: Model, number: int, start: int, end: int, low: int, text: str
) -> tuple[int, Token]:
    """Return id and token, its span clipped to a turn's text, which begins at `low`."""
    span = (min(max(at - low, 0), len(text)) for at in (start, end))
    name = clean_name(str(model.tokenizer.convert_ids_to_tokens(number)))
    return number, Token(name, *span)


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a tokenizer puts before and after a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
    if all(special):  # the letter is unknown
        return (), ()
    first, last = special.index(0), len(special) - special[::-1].index(0)
    return tuple(ids[:first]), tuple(ids[last:])


# ------------------------------------------------------------------------------- choices


def _check_heads(config: Any, layer: int, heads: Sequence[int] | None) -> tuple[int, ...]:
    config = config.get_text_config()
    check_count("layer", layer, 0, config.num_hidden_layers - 1)
    if not hasattr(config, "num_attention_heads"):
        raise ValueError(f"a model of type {config.model_type!r} has no attention heads")
    count = config.num_attention_heads
    chosen = tuple(range(count)) if heads is None else tuple(heads)
    for head in chosen:
        check_count("head", head, 0, count - 1)
        if chosen.count(head) > 1:
            raise ValueError(f"head {head} is given twice")
    if not chosen:
        raise ValueError("give at least one head")
    return chosen
