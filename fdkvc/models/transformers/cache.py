"""A policy's cache for the ``generate`` of any causal *transformers* model.

Every layer holds the entries that the policy kept, its slots, followed by the tokens of the current
turn (`layer`). Heads that keep fewer entries than others of their layer have empty slots, which are
masked. This is a chat of two turns with a budget of four; numbers are tokens::

    model reads a prompt   0 1 2 3 4         each layer: `update`, `before_attention`
      its turn ends        0 1   3 4         last layer: `after_attention`; the policy evicts 2
    model writes 5, 6      0 1   3 4 5 6     nothing is evicted while it writes, but see `every`
    model reads a prompt   0 1       5 6     `get_mask_sizes`: first ends the turn of 5 and 6
                           0 1       5 6 7 8
      its turn ends        0 1         6   8

The life of a `PolicyCache`:

1. It is made for a model, whose attention it has wrapped (`attention_hooks`), and replaces the
   library's layers that attend to the whole text by a `PolicyLayer` each. It may decide for these
   only; the others are left to the model.

A forward pass of the model, over the next tokens of all texts:

2. `get_mask_sizes`: a prompt ends the turn of the tokens written before.
3. `update`, for each layer: the new keys and values are appended.
4. `before_attention`, for each layer: the hidden states and queries that the policy needs, or the
   sum of queries, are stored, and empty slots are masked. The first layer also notes the tokens of
   the pass and their padding.
5. `after_attention`, of the last layer: a prompt ends its turn, as do `every` written tokens.

The end of a turn, in `end_turn`:

6. What was noted of its passes is joined: which tokens are padding, and what they say.
7. For each text, the policy decides from the state that the turn before left (`HeadEviction`).
8. Each layer keeps the entries chosen (`PolicyLayer.keep`). For ``positions="slots"``, the turn's
   keys are first stored without positions as well, and the kept ones are then rotated to the
   positions that close the gaps.

Invariants:

- Between turns no pass is noted, and the slots of a layer are those of the policy's state.
- Nothing before step 6 waits for the device, except recording. Step 7 waits once for each
  `HeadEviction`.
- What an attribute refers to is replaced, never modified, but for the list of layers. So `fork`
  copies references, and each layer once.
- A turn whose end was interrupted, as by a lack of memory, is completed by the next pass.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.generation import BaseStreamer

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.cache import padded
from fdkvc.core.parameters import check_count
from fdkvc.core.words import count
from fdkvc.engine.sinks import FirstTokensWarning, sinks_notes
from fdkvc.models.numpy.features import with_new
from fdkvc.models.numpy.head_eviction import (
    DECIDES,
    POSITIONS,
    HeadEviction,
    Heads,
    check_eviction,
    check_keeps,
    deciding,
    equal_budgets,
)
from fdkvc.models.numpy.model_text import Kind
from fdkvc.models.numpy.tokens import TOKEN_FEATURES, Tokens, library_tokens
from fdkvc.models.transformers.attention_hooks import (
    EXPAND,
    FLASH,
    NO_INTERFACE,
    AttentionInputs,
    Expected,
    attach,
    check_attached,
    eager,
    this_pass,
)
from fdkvc.models.transformers.layer import (
    KEYS_VALUES,
    EarlyCopy,
    PolicyLayer,
    full_layers,
    kind_of,
    on_device_of,
)
from fdkvc.models.transformers.observed import LayerVectors, TensorTokens
from fdkvc.models.transformers.rotary import Rotation, rotations
from fdkvc.policies import Policy
from fdkvc.policies.base import Available
from fdkvc.policies.wrapper import inside

ENTRIES_AT_ONCE = 2**22
"""If each head decides, all layers decide at once up to so many entries of all query heads."""

ENTRY_VECTORS = {"queries": "queries", "similarity": "hidden"}
"""What a policy looks at, and the vectors of cached entries that it needs for this, besides keys
and values."""

TURN_VECTORS = {"attention": "queries", **ENTRY_VECTORS}
"""The same of the turn's tokens. For attention of their mean query, the sum of queries will do."""


class _NotedPass(NamedTuple):
    """A forward pass of this turn."""

    tokens: int
    """Their number n in each text."""
    real: EarlyCopy | None
    """Which of them are not padding (B, n); None for all."""
    ids: EarlyCopy | None
    """The tokens (B, n), if the policy needs them."""
    moved: EarlyCopy | None
    """Whether the model read each at another place than their count (…, n); None if it does not
    matter."""


class _Decision(NamedTuple):
    """What a policy decided at the end of a turn."""

    states: tuple[tuple[HeadEviction, ...], ...]
    """Of each text, as `PolicyCache` has them."""
    features: tuple[dict[str, NDArray[Any]], ...]
    """Those of each text."""
    kept: list[tuple[int, list[Ints]]]
    """For each layer that has yet to keep its entries: its number, and what it keeps by text."""


def _refused(sentence: str) -> Callable[..., None]:
    """Return a method that refuses what a cache of the library may be asked for."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError(f"a PolicyCache {sentence}")

    return refuse


class PolicyCache(DynamicCache):  # type: ignore[misc]
    """A cache that a policy evicts from between turns.

    A prompt's turn ends with its forward pass; that of the model's own tokens with the next prompt,
    or at once with `end_turn` or `streamer`. A pass of several tokens, or the first, is a prompt;
    `begin_turn` announces one of a single token.

    Parameters
    ----------
    policy : Policy
        Any that evicts and does not look at the future.
    budget : int
        Entries that each KV head may hold at the end of a turn.
    model : the library's
        A causal model, whose attention is *eager*, *sdpa* or a flash attention.
    tokenizer : the library's or Tokens, optional
        For policies that look at words or how rare they are.
    every : int, optional
        Also end a turn every so many tokens while the model writes.
    decides : {"head", "layer", "model"}
        Whether each KV head decides for itself, or all heads of a layer or of the model together.
        Flash attention, which takes no mask, needs one of the latter two.
    positions : {"kept", "slots"}
        Whether entries keep their rotary positions or close the gaps, as in StreamingLLM: rotated
        once, from keys stored without positions.
    by_itself : bool
        Whether turns end automatically; otherwise only `end_turn` ends one.
    record : bool or sequence of int
        Whether to store all vectors of a text, or of which
        layers.

    Attributes
    ----------
    decided : tuple of int
        Layers that the policy evicts from; the others are left to the model.
    leads : bool
        Whether others are to `follow` its next pass.
    turn_kind : {"system", "result"}, optional
        What this turn is, if a turn is one message whose mark does not tell it.
    ends : list of int
        The tokens seen at the end of each turn, padding included.
    held_by_turn : list of array (L, K, S)
        What `held` was after each turn, if recorded.
    recorded_layers : tuple of int
    attention : fdkvc.models.transformers.attention_hooks.Attention
        How the model attends.
    rotations : dict of int to fdkvc.models.transformers.rotary.Rotation
        How layers rotate their keys, with ``positions="slots"``; one that does not is not in it.
    flash : bool
        Whether that is a flash attention.

    Raises
    ------
    ValueError
        For an unsupported policy, option or model; in use, for another number of texts, for beams,
        or for a text that ends in padding.

    Warns
    -----
    FirstTokensWarning
        If the policy can evict the first tokens of a text, which pretrained models attend to.
    UserWarning
        If a setting of the policy changes nothing here.

    Examples
    --------
    ``model.generate(**turn, cache=PolicyCache(policy, budget=256, model=model))``
    """

    def __init__(
        self,
        policy: Policy,
        budget: int,
        model: Any,
        *,
        tokenizer: Any = None,
        every: int | None = None,
        decides: str = DECIDES.default,
        positions: str = POSITIONS.default,
        by_itself: bool = True,
        record: bool | Sequence[int] = False,
    ) -> None:
        # 1. What is asked for.
        check_keeps(policy)
        check_eviction(policy, budget, decides)
        if tokenizer is None:
            check_needs_no_text(policy)
        for sentence in sinks_notes([policy], [budget]):
            warnings.warn(sentence, FirstTokensWarning, stacklevel=2)
        POSITIONS.check(positions, "positions")
        if every is not None:
            check_count("every", every)
        # 2. The model, and its layers that the policy evicts from.
        super().__init__(config=model.config)
        self.policy = policy
        self.budget = budget
        self.every = every
        self.by_itself = by_itself
        self.decided = full_layers(self.layers, model.config)
        model = getattr(model, "_orig_mod", model)  # of a compiled one
        self.attention = attach(model, self.decided)
        self.flash = self.attention.implementation in FLASH
        if self.flash and decides == "head":
            raise ValueError(
                "flash attention takes no mask, so the heads of a layer must keep the same tokens: "
                'choose decides="layer", or load the model with attn_implementation="sdpa"'
            )
        self._decides = decides
        layers = [*record] if isinstance(record, Sequence) else []
        if not isinstance(record, bool | Sequence) or not {*layers} <= {*self.decided}:
            raise ValueError(
                f"record is {record!r}, but must name layers that the policy decides for: "
                f"{', '.join(map(str, self.decided))}"
            )
        self.recorded_layers = self.decided if record is True else tuple(layers)
        self._config = model.config
        self.rotations: Mapping[int, Rotation] = {}
        if positions == "slots":
            self.rotations = rotations(model, self.attention)
        # 3. The vectors that the policy needs, or a recording has.
        self._attends = "attention" in policy.looks_at
        looks = {*policy.looks_at}
        if policy.queries == "mean":
            looks.discard("attention")
        # Whether queries are needed for attention alone, so that those not looked at can go.
        self._attends_by_query = "attention" in looks and "queries" not in looks
        self._needed = {TURN_VECTORS[look] for look in looks if look in TURN_VECTORS}
        self._captured = {"queries", "hidden"} if self.recorded_layers else self._needed
        carried = [ENTRY_VECTORS[look] for look in policy.looks_at if look in ENTRY_VECTORS]
        for number in self.decided:
            expand = getattr(self.attention.modules[number], EXPAND, None)
            unrotated = ["unrotated"] if number in self.rotations else []
            expands = expand if self.attention.latent else None
            self.layers[number] = PolicyLayer([*carried, *unrotated], expands)
        # 4. The tokenizer, and which settings of the policy have an effect with it.
        self._tokens: Tokens | None = None
        if TOKEN_FEATURES & {*policy.looks_at}:
            ready = isinstance(tokenizer, Tokens)
            self._tokens = tokenizer if ready else library_tokens(tokenizer)
        tokens = self._tokens
        available = Available(
            speakers=tokens.speakers if tokens else (),
            kinds=tokens.kinds if tokens else (),
            words=tokens is not None,
            **deciding(decides, self.attention.kv_heads, len(self.decided)),
        )
        for note in policy.without_effect(available):
            warnings.warn(f"{policy.title}: {note}", stacklevel=2)
        # 5. The text so far.
        self.leads = False
        self.turn_kind: Kind | None = None
        self.ends: list[int] = []
        self.held_by_turn: list[Ints] = []
        # Of each text: the policy's state in each group of layers that decide at once, and what the
        # policy may see of its tokens. Empty before the first turn ends.
        self._states: tuple[tuple[HeadEviction, ...], ...] = ()
        self._features: tuple[dict[str, NDArray[Any]], ...] = ()
        self._passes: tuple[_NotedPass, ...] = ()  # of this turn
        self._decision: _Decision | None = None  # until all layers have kept their entries
        self._inputs: dict[
            int, AttentionInputs
        ] = {}  # of the last pass by layer, if it `leads`
        self._prompt_end = 0  # tokens before this place are read as prompts, even one by one
        self._prompt = False  # whether this forward pass reads a prompt
        # The vectors of each pass, by name and layer.
        self._recorded: dict[tuple[str, int], tuple[Floats, ...]] = {}

    # --------------------------------------------------------------------------- library interface

    @eager
    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the mask's sizes; a prompt first ends the turn of the tokens written before it."""
        # In a getter, since the library asks for sizes before the first layer reads a prompt.
        if self._decision is not None or (self.by_itself and self._is_prompt(query_length)):
            self.end_turn()
        sizes: tuple[int, int] = super().get_mask_sizes(query_length, layer_idx)
        return sizes

    def refuse_text(self, tokens: int) -> None:
        """Raise a ValueError on a text of so many tokens, which cannot begin with those seen."""
        if not tokens:
            raise ValueError("this text has no tokens to read: give it one at least")
        raise ValueError(
            f"this text has {count(tokens, 'token')}, but its PolicyCache has already read "
            f"{self.seen:,}: give the whole text so far, or make a new cache for another text"
        )

    def _is_prompt(self, tokens: int) -> bool:
        """Whether a pass over so many next tokens reads a prompt."""
        return tokens > 1 or self.seen == 0 or self.seen + tokens <= self._prompt_end

    @eager
    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **named: Any
    ) -> Any:
        """Add the keys and values of new tokens; return all of the layer."""
        # 1. The texts and the model are those that this cache is for.
        texts = self.texts
        if texts and len(key_states) != texts:
            raise ValueError(
                f"a PolicyCache that began with {texts} texts cannot go on with {len(key_states)}: "
                "make a new one"
            )
        if layer_idx in self.decided:
            check_attached(self._config)
            if this_pass.module is not self.attention.modules[layer_idx]:
                raise ValueError(
                    "this PolicyCache was made for another model than the one that reads with it: "
                    "make a new one"
                )
        # Before the first layer: then `seen` counts this pass, too, and differs between layers.
        if layer_idx == self.decided[0]:
            self._check_noted()
            self._prompt = self._is_prompt(key_states.shape[2])
        # 2. The library appends, and the attention that follows is expected to call back.
        keys, values = super().update(key_states, value_states, layer_idx, *args, **named)
        if layer_idx in self.decided:
            prepare = partial(self.before_attention, layer_idx)
            finish = partial(self.after_attention, layer_idx)
            this_pass.expected = Expected(keys, values, prepare, finish)
        return keys, values

    crop = _refused("cannot go back: make a fork of it before")
    reset = _refused("cannot begin again: make a new one for other texts")
    reorder_cache = _refused("cannot serve several beams: generate with num_beams=1")
    batch_repeat_interleave = _refused(
        "cannot repeat a text: make a fork for each continuation"
    )
    batch_select_indices = _refused("cannot select among its texts: make one for each")
    __getstate__ = _refused("is of a model in memory, so it cannot be pickled: make a new one")

    def __repr__(self) -> str:
        remark = f"; {self.left}" if self.left else ""
        return f"PolicyCache({self.policy.name}, budget {self.budget}{remark})"

    # --------------------------------------------------------------------------- attention hooks

    def before_attention(self, layer: int, inputs: AttentionInputs) -> Any:
        """Store what the policy needs of a layer's inputs; return the mask to use."""
        cached_layer = self.layers[layer]
        *_, n, h = inputs.queries.shape
        # 1. The first layer of a pass notes its tokens.
        if layer == self.decided[0]:
            self._passes = (*self._passes, self._noted(n, inputs))
            # The inputs of the pass before would hold its tensors.
            self._inputs = {}
        if self.leads:
            self._inputs = {**self._inputs, layer: inputs}
        # 2. Store the vectors that the policy looks at.
        captured = {}
        if self._attends or "queries" in self._captured:
            # A policy multiplies queries with keys and then scales by 1/√h, whatever the model's
            # own factor is.
            scale = 1.0 if inputs.scaling is None else float(inputs.scaling) * math.sqrt(h)
            captured["queries"] = inputs.queries.detach() * scale
        noted = self._passes[-1].real
        real = None if noted is None else noted.tensor
        if self._attends:
            cached_layer.add_queries(captured["queries"], real)
        if "hidden" in self._captured:
            captured["hidden"] = inputs.hidden.detach()[:, None]
        cached_layer.add_vectors(**{name: captured[name] for name in self._needed})
        # Most queries of a turn are those of its prompt, which as a rule is its first pass.
        if self._attends_by_query and len(self._passes) == 1:
            cached_layer.keep_last_queries(self.policy.last_queries(n), real)
        # 3. Record them all, if asked to, with the keys and values.
        if layer in self.recorded_layers:
            if len(inputs.queries) > 1 or self._real_tokens() is not None:
                raise ValueError("record=True is for one text without padding")
            for name in KEYS_VALUES:
                captured[name] = cached_layer.vectors(name, 0, "turn")[None, :, -n:]
            for name, vectors in captured.items():
                of_text = vectors[0].detach().float().cpu().numpy()
                parts = (*self._recorded.get((name, layer), ()), of_text)
                self._recorded = {**self._recorded, (name, layer): parts}
        heads = self.attention.heads if self._decides == "head" else 1
        return cached_layer.mask(inputs.queries, inputs.mask, heads=heads, flash=self.flash)

    def _noted(self, n: int, inputs: AttentionInputs) -> _NotedPass:
        """Note the n tokens of a pass. Nothing waits for the device: `_decide` reads the copies."""
        ids = real = moved = None
        if self._tokens is not None:
            if inputs.ids is None:
                raise ValueError(
                    f"{self.policy.label} needs to know the tokens: give the model input_ids "
                    "instead of inputs_embeds"
                )
            ids = EarlyCopy(inputs.ids)
        mask = inputs.mask
        positions = inputs.positions
        # A single token is never padding: what `generate` writes after the end of a text counts as
        # read.
        if mask is not None and n > 1:
            # The last token sees all others of its text, so what it does not see is padding.
            last = mask[:, -n:] if mask.ndim == 2 else mask[:, 0, -1, -n:]
            real = EarlyCopy(last >= 0 if last.is_floating_point() else last.bool())
        if self.rotations and positions is not None:
            counted = torch.arange(self.seen - n, self.seen, device=positions.device)
            moved = EarlyCopy(positions != counted)
        return _NotedPass(n, real, ids, moved)

    def _check_noted(self) -> None:
        """Raise a ValueError if a pass broke off, or the hooks did not see all of this turn."""
        if len({self.layers[number].seen for number in self.decided}) > 1:
            raise ValueError(
                "a forward pass broke off between the layers of this PolicyCache, so its text is "
                "not whole: go on with a fork made before that"
            )
        if sum(noted.tokens for noted in self._passes) != self._new:
            raise ValueError(f"{NO_INTERFACE}, so this PolicyCache has evicted nothing")

    def after_attention(self, layer: int) -> None:
        """End the turn, if it ends with the attention of this layer."""
        if not self.by_itself or layer != self.decided[-1]:
            return
        if self._prompt or (self.every is not None and self._new >= self.every):
            self.end_turn()

    # --------------------------------------------------------------------------- eviction

    @property
    def seen(self) -> int:
        """Tokens so far, padding included."""
        return int(self.layers[self.decided[0]].seen)

    @property
    def texts(self) -> int:
        """Number of texts; 0 before any is read."""
        first = self.layers[self.decided[0]]
        return len(first.keys) if first.is_initialized else 0

    @property
    def _new(self) -> int:
        """Tokens since the last turn ended."""
        return self.seen - (self.ends[-1] if self.ends else 0)

    @property
    def held(self) -> Ints:
        """The tokens that each head holds (L, K, S) in the decided layers, −1 for none.

        Of several texts (B, L, K, S); each counts its own tokens, without padding.
        """
        if not self.texts:
            return np.empty((len(self.decided), 0, 0), np.intp)
        shape = (len(self.decided), self.layers[self.decided[0]].kv_heads, self._new)
        tokens = []
        for states in self._states or ((),) * self.texts:
            first = states[0].count if states else 0
            turn = np.broadcast_to(np.arange(first, first + self._new), shape)
            # Layers that decide one after the other may hold different numbers of tokens.
            slots = padded([state.slots for state in states]) if states else [turn[:, :, :0]]
            tokens.append(np.concatenate([np.concatenate(slots), turn], axis=2))
        return tokens[0] if self.texts == 1 else np.stack(padded(tokens))

    @property
    def holds_all(self) -> bool:
        """Whether every head holds all tokens of its text."""
        layers = [self.layers[number] for number in self.decided]
        return all(row.held + row.turn == row.seen and row.empty is None for row in layers)

    @property
    def left(self) -> str:
        """A note on the layers that are left to the model; empty without any."""
        kinds: dict[str, list[str]] = {}
        for number, layer in enumerate(self.layers):
            if number not in self.decided:
                kinds.setdefault(kind_of(layer), []).append(str(number))
        if not kinds:
            return ""
        parts = (f"layers {', '.join(numbers)} ({kind})" for kind, numbers in kinds.items())
        return f"left to the model: {'; '.join(parts)}"

    def begin_turn(self, tokens: int | None = None) -> None:
        """End the turn of the written tokens; what the model reads next is a prompt.

        At its end the text has so many tokens, by default one more than now.
        """
        self.end_turn()
        self._prompt_end = self.seen + 1 if tokens is None else tokens

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def end_turn(self) -> None:
        """End the turn: the policy evicts. Without new tokens nothing happens.

        Raises a ValueError if there is too little memory. Then the turn has not ended, and it can
        be tried again; if the policy has decided, the next pass does so first.
        """
        if not self._new:
            return
        self._check_noted()
        slots = self.layers[self.decided[0]].held
        with enough_memory(
            f"keep the best of {slots + self._new:,} entries of {self.texts} texts"
        ):
            if self._decision is None:
                self._decision = self._decide()
            # One layer after the other, so that what one evicts makes room for the next.
            while self._decision.kept:
                number, choice = self._decision.kept[0]
                self.layers[number] = self._with_kept(number, choice)
                self._decision = self._decision._replace(kept=self._decision.kept[1:])
        self._states, self._features, _ = self._decision
        self._passes = ()
        self._decision = None
        self.ends = [*self.ends, self.seen]
        if self.recorded_layers:
            self.held_by_turn = [*self.held_by_turn, self.held]

    def _decide(self) -> _Decision:
        """Let the policy decide for each text."""
        layers = [self.layers[number] for number in self.decided]
        if not self._states:
            self._begin(layers)
        # 1. Join what the passes noted of the turn (B, N).
        real = self._real_tokens()
        for layer in layers:
            layer.real = real
        features = self._with_text(real)
        # 2. Decide for each text.
        states = []
        kept_by_text = []
        for text in range(self.texts):
            new = self._new if real is None else int(real[text].sum())
            of_text, choices = self._evict(layers, text, new, features[text])
            states.append(of_text)
            kept_by_text.append(choices)
        # 3. What each layer is to keep.
        by_layer = map(list, zip(*kept_by_text, strict=True))
        return _Decision(tuple(states), features, [*zip(self.decided, by_layer, strict=True)])

    def _with_kept(self, number: int, choices: Sequence[Ints]) -> PolicyLayer:
        """Return a layer with the entries chosen of each text.

        Where keys rotate, those of the turn are first stored without positions as well; then kept
        keys are rotated to the positions before the next token's. So a key is rotated only once,
        however often the gaps close.
        """
        # A copy: if memory runs out below, the cache still has the layer as the turn left it.
        layer: PolicyLayer = copy.copy(self.layers[number])
        rotation = self.rotations.get(number)
        if rotation is None:
            layer.keep(choices)
            return layer
        # In single precision: half precision would round once more on the way back.
        new = layer.keys[:, :, layer.held :].float()  # (B, K, N, h)
        turn_positions = torch.arange(self.seen - new.shape[2], self.seen, device=new.device)
        positions = turn_positions.expand(new.shape[1], -1)
        unrotated = [rotation(text, positions, inverse=True) for text in new]
        layer.add_vectors(unrotated=torch.stack(unrotated))
        layer.keep(choices)
        for text, places in enumerate(choices):
            size = places.shape[1]
            # The number of entries from each slot on (K, S): the last is just before `seen`.
            from_last = (places >= 0)[:, ::-1].cumsum(axis=1)
            keys = layer.vectors("unrotated", text, "slots")[:, :size]
            positions = on_device_of(keys, self.seen - from_last[:, ::-1])
            # In place, since `keep` has just made these.
            layer.keys[text, :, :size] = rotation(keys, positions)
        return layer

    def _evict(
        self,
        layers: Sequence[PolicyLayer],
        text: int,
        token_count: int,
        features: Mapping[str, NDArray[Any]],
    ) -> tuple[tuple[HeadEviction, ...], list[Ints]]:
        """Let the policy decide for a text; return its states after that, and what layers keep."""
        heads = self.attention.heads
        vectors = [LayerVectors(layer, text, heads, range(heads)) for layer in layers]
        # One state is of all layers, several are of a layer each; see `_begin`.
        states = []
        choices = list[Ints]()
        size = len(layers) // len(self._states[text])
        for number, state_before in enumerate(self._states[text]):
            group = vectors[number * size : (number + 1) * size]
            state, step = state_before.after(token_count, group, features)
            states.append(state)
            choices.extend(step.sources)
        return tuple(states), choices

    def _begin(self, layers: Sequence[PolicyLayer]) -> None:
        """Make the states of the policy before the first turn."""
        attention = self.attention
        # Layers that decide one after the other take less memory, and need not have as many slots
        # as the one that holds most.
        is_small = len(layers) * attention.heads * self.budget <= ENTRIES_AT_ONCE
        is_small = is_small and equal_budgets(self.policy, self.budget)
        at_once = self._decides == "model" or (self._decides == "head" and is_small)
        groups = 1 if at_once else len(layers)
        sizes = attention.heads, attention.kv_heads, attention.head_width
        heads = Heads(len(layers) // groups, *sizes)
        begin = partial(
            HeadEviction, self.policy, self.budget, heads, self._decides, len(layers)
        )
        by_query = "queries" in self._needed or {"keys", "values"} & {*self.policy.looks_at}
        tokens: Any = TensorTokens if by_query else partial(TensorTokens, by_numbers=True)
        first_states = tuple(begin(number, tokens=tokens) for number in range(groups))
        self._states = (first_states,) * self.texts  # a state is never modified
        self._features = ({},) * self.texts

    def _real_tokens(self) -> Bools | None:
        """Return which of the turn's tokens are not padding (B, N); None for all.

        Raises a ValueError for padding where there may be none, and for other positions: only here
        the host reads what was noted of them.
        """
        marks = []
        for noted in self._passes:
            if noted.moved is not None and noted.moved.numpy().any():
                raise ValueError(
                    'positions="slots" counts the tokens of a text, but this model reads them at '
                    'other positions, as with position_ids or an image: choose positions="kept"'
                )
            of_pass = np.True_ if noted.real is None else noted.real.numpy()
            marks.append(np.broadcast_to(of_pass, (self.texts, noted.tokens)))
        if not all(of_pass[:, -1].all() for of_pass in marks):
            raise ValueError(
                "a text of the batch ends in padding here: pad on the left, and read no part of "
                "the batch in which a text has padding alone"
            )
        real = np.concatenate(marks, axis=1)
        if real.all():
            return None
        if self.rotations:
            raise ValueError('positions="slots" is for texts without padding')
        return real

    def _with_text(self, real: Bools | None) -> tuple[dict[str, NDArray[Any]], ...]:
        """Return what is known of each text with what the turn's tokens say, if it matters."""
        if self._tokens is None:
            return self._features
        features = []
        parts = [noted.ids.numpy() for noted in self._passes if noted.ids is not None]
        for text, ids in enumerate(np.concatenate(parts, axis=1)):
            ids = ids if real is None else ids[real[text]]
            new = self._tokens.features(ids.tolist(), self.policy.looks_at, self.turn_kind)
            features.append(with_new(self._features[text], new))
        return tuple(features)

    def streamer(self, more: Any = None) -> Any:
        """Return a streamer for ``generate``, which begins a turn with its prompt and ends it.

        It forwards to `more`, another streamer, if given.

        Examples
        --------
        ``model.generate(**turn, cache=cache, streamer=cache.streamer())``
        """
        return _TurnEnd(self, more)

    def follow(self, leader: PolicyCache) -> None:
        """Take over the last pass of a cache that `leads`; both hold the whole text so far.

        They share its tensors, and the policy has observed what it would in a pass of its own.
        """
        for number, layer in enumerate(leader.layers):
            if number in self.decided:
                self.layers[number].follow(layer)
                self.before_attention(number, leader._inputs[number])
            else:
                self.layers[number] = _copied(layer)

    def fork(self) -> PolicyCache:
        """Return an independent copy; both share the tensors that they hold now."""
        copied_cache = object.__new__(type(self))
        copied_cache.__dict__ |= vars(self)
        copied_cache.layers = [*map(_copied, self.layers)]
        return copied_cache

    __copy__ = fork

    def __deepcopy__(self, _: Any) -> PolicyCache:
        return self.fork()

    def recorded(self, name: str) -> Floats:
        """Return the queries, keys, values or hidden states of all tokens (L, heads, N, ·).

        Raises a LookupError if they were not recorded.
        """
        if not any(name == recorded for recorded, _ in self._recorded):
            raise LookupError(f"this cache has recorded no {name}: make one with record=True")
        parts = [self._recorded[name, layer] for layer in self.recorded_layers]
        return np.stack([np.concatenate(part, axis=1) for part in parts])


def _copied(layer: Any) -> Any:
    """Return a copy of a layer, which changes as it is read with.

    The tensors of a `PolicyLayer` and of the library's attention layers are only replaced; its
    layers of other kinds modify theirs.
    """
    return copy.copy(layer) if isinstance(layer, DynamicLayer) else copy.deepcopy(layer)


class _TurnEnd(BaseStreamer):  # type: ignore[misc]
    """Begins a turn with the prompt that ``generate`` reads, and ends one with its end."""

    def __init__(self, cache: PolicyCache, next_streamer: Any) -> None:
        self._cache = cache
        self._more = next_streamer
        self._began = False

    def put(self, value: Any) -> None:
        # `generate` puts the prompt first, and then each token that it writes.
        if not self._began:
            self._cache.begin_turn(value.shape[-1])
        self._began = True
        if self._more is not None:
            self._more.put(value)

    def end(self) -> None:
        self._cache.end_turn()
        self._began = False
        if self._more is not None:
            self._more.end()


def check_needs_no_text(policy: Policy) -> None:
    """Raise a ValueError for a policy that looks at the text of tokens."""
    readers = [part for part in inside(policy) if TOKEN_FEATURES & {*part.looks_at}]
    if readers:
        raise ValueError(
            f"{readers[-1].label} looks at the text of tokens, for which a PolicyCache needs the "
            "model's tokenizer: add tokenizer="
        )


@contextmanager
def enough_memory(task: str) -> Iterator[None]:
    """Say in one sentence what there is not enough memory for, and what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On the CPU torch has no error of its own for this.
        is_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not is_memory and "not enough memory" not in str(error):
            raise
        raise ValueError(
            f"there is not enough memory to {task}: read shorter parts or fewer texts and policies "
            "at once, or choose a smaller budget or model"
        ) from None
