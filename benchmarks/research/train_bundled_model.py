"""Train the bundled model: a small decoder that reads dialogs and writes their service calls.

Reads train.json.xz, the training dialogues of the Schema-Guided Dialogue dataset (Rastogi et al.
2020, CC BY-SA 4.0) as one list, and writes a folder as *transformers* would: config.json,
model.safetensors, tokenizer.json; and log.jsonl, which starts with the settings. 500 dialogues,
drawn by the seed, are held out for evaluation.

A call gives its arguments in the words of the dialog. So that the model copies names instead of
memorizing them, some are replaced throughout a dialog, differently in each epoch; and tokens of
calls weigh more in the loss.

An interrupted run continues: it is called again with the same options. Needs the packages of
requirements-capture.txt; uses a GPU if there is one.

    python -m benchmarks.research.train_bundled_model train.json.xz FOLDER [--tokens N] [--seed 0]
"""

import json
import math
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import options
from benchmarks.research.held_out import HELD_OUT, parted, read_dialogues
from fdkvc.conversations.formats.annotated import read_dialogue
from fdkvc.models.numpy.model_text import Passage, model_text
from fdkvc.models.numpy.tokens import END, MARKS, load_tokens

Example = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""A dialog's tokens (n,), and which of them belong to a call."""


@dataclass(frozen=True)
class Settings:
    """The model, and how it is trained."""

    seed: int = 0
    tokens: float = 16e6
    layers: int = 4
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    inner: int = 352
    vocabulary: int = 3000
    held_out: int = HELD_OUT
    batch: int = 8
    """Dialogs per step, of similar length."""
    rate: float = 4e-3
    """Peak learning rate: warms up over the first steps, decays over the last tokens."""
    rising_steps: int = 200
    falling_share: float = 0.3
    weight_decay: float = 0.05
    call_weight: float = 4.0
    longest: int = 1024
    """Tokens; longer dialogs are truncated."""
    replaced: float = 0.5
    """A dialog's names are kept, replaced by this share, or all replaced, with equal chance."""
    told_every: int = 500
    told_of: int = 100
    """Steps between evaluations, and held-out dialogs of each."""


# ------------------------------------------------------------------------------- the model


def new_model(settings: Settings, end: int) -> LlamaForCausalLM:
    """Return a model with random weights; those that add to hidden states are smaller."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=settings.vocabulary,
            hidden_size=settings.width,
            intermediate_size=settings.inner,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.kv_heads,
            max_position_embeddings=settings.longest,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=0,
        )
    )
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight.data /= math.sqrt(2 * settings.layers)
    return model


# ------------------------------------------------------------------------------- the text


class Corpus:
    """The training and held-out dialogs, and the tokenizer trained on the former."""

    def __init__(self, path: Path, folder: Path, settings: Settings) -> None:
        self.settings = settings
        dialogues = read_dialogues(path)
        self.dialogs, self.held_out = parted(dialogues, settings.held_out, settings.seed)
        self.passages = [_passages(dialog) for dialog in self.dialogs]
        if not (folder / "tokenizer.json").exists():
            self._make_tokenizer().save(str(folder / "tokenizer.json"))
        self.tokens = load_tokens(folder, settings.vocabulary)
        self.names = _names(self.dialogs)

    def _make_tokenizer(self) -> Any:
        made = Tokenizer(models.BPE())
        bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        single_digits = pre_tokenizers.Digits(individual_digits=True)
        made.pre_tokenizer = pre_tokenizers.Sequence([single_digits, bytes_of_words])
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.settings.vocabulary,
            special_tokens=["<pad>", *MARKS.values(), END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        texts = (passage.text for passages in self.passages for passage in passages)
        made.train_from_iterator(texts, trainer)
        return made

    def epoch(self, number: int) -> list[list[Example]]:
        """Return the batches of an epoch, with its own replaced names."""
        settings, rng = self.settings, random.Random(f"{self.settings.seed}/{number}")
        texts = []
        for dialog, passages in zip(self.dialogs, self.passages, strict=True):
            share = rng.choice([0, settings.replaced, 1])
            texts.append(_renamed(dialog, passages, self.names, rng, share))
        examples = self.examples(texts)
        rng.shuffle(examples)
        batches, pool = [], settings.batch * 32
        for first in range(0, len(examples), pool):
            alike = sorted(examples[first : first + pool], key=lambda example: len(example[0]))
            batches += [
                alike[at : at + settings.batch] for at in range(0, len(alike), settings.batch)
            ]
        rng.shuffle(batches)
        return batches

    def examples(self, dialogs: Iterable[Sequence[Passage]]) -> list[Example]:
        """Return dialogs in tokens."""
        dialogs = list(dialogs)
        texts = [passage.text for passages in dialogs for passage in passages]
        encoded = iter(self.tokens.tokenizer.encode_batch(texts, add_special_tokens=False))
        examples = []
        for passages in dialogs:
            ids: list[int] = []
            calls: list[bool] = []
            for passage in passages:
                words = [*next(encoded).ids, self.tokens.end]
                ids += [*self.tokens.marks[passage.writer], *words]
                calls += [False] + [passage.writer == "call"] * len(words)
            beginning = slice(self.settings.longest)
            examples.append((np.array(ids)[beginning], np.array(calls)[beginning]))
        return examples


def _passages(dialog: Mapping[str, Any]) -> tuple[Passage, ...]:
    (transcript,) = read_dialogue(dialog, 0)
    return model_text(transcript)


def _spans(dialog: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each annotated name with its slot."""
    for turn in dialog["turns"]:
        for frame in turn["frames"]:
            for slot in frame.get("slots", ()):
                if "start" in slot:
                    yield turn["utterance"][slot["start"] : slot["exclusive_end"]], slot["slot"]


def _names(dialogs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names of each slot with many of them, except dates and amounts."""
    names_of: dict[str, set[str]] = {}
    for dialog in dialogs:
        for name, slot in _spans(dialog):
            names_of.setdefault(slot, set()).add(name)
    no_names = ("date", "time", "price", "fare", "balance", "amount")
    return {
        slot: sorted(names)
        for slot, names in names_of.items()
        if len(names) >= 80 and not any(word in slot for word in no_names)
    }


def _renamed(
    dialog: Mapping[str, Any],
    passages: Sequence[Passage],
    names: Mapping[str, Sequence[str]],
    rng: random.Random,
    share: float,
) -> Sequence[Passage]:
    """Replace a share of a dialog's names consistently by others of the same slot."""
    slots = dict(_spans(dialog))
    instead = {
        name.lower(): rng.choice(names[slot])
        for name, slot in slots.items()
        if len(name) > 2 and slot in names and rng.random() < share
    }
    if not instead:
        return passages
    longest_first = sorted(instead, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.IGNORECASE)

    def other(match: re.Match[str]) -> str:
        return instead.get(match.group().lower(), match.group())

    return [
        Passage(passage.writer, pattern.sub(other, passage.text), passage.turn)
        for passage in passages
    ]


# ------------------------------------------------------------------------------- training


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def padded(examples: Sequence[Example], longest: int, call_weight: float = 1) -> tuple[Any, Any]:
    """Return tokens (B, T + 1) and the weight of each but the first (B, T), 0 for padding."""
    length = max(len(ids) for ids, _ in examples) - 1
    length = min(-(-length // 64) * 64, longest)
    tokens = np.zeros((len(examples), length + 1), np.int64)
    weights = np.zeros((len(examples), length), np.float32)
    for row, (ids, calls) in enumerate(examples):
        tokens[row, : len(ids)] = ids
        weights[row, : len(ids) - 1] = np.where(calls[1:], call_weight, 1)
    return torch.from_numpy(tokens).to(DEVICE), torch.from_numpy(weights).to(DEVICE)


class Training:
    """A training run; `folder` has its state, its log, and at the end the model."""

    def __init__(self, corpus: Corpus, folder: Path, settings: Settings) -> None:
        self.corpus, self.folder, self.settings = corpus, folder, settings
        torch.manual_seed(settings.seed)
        self.model: Any = new_model(settings, corpus.tokens.end)
        self.model.to(DEVICE)
        matrices = [weight for weight in self.model.model.layers.parameters() if weight.dim() == 2]
        norms = [weight for weight in self.model.parameters() if weight.dim() < 2]
        self.optimizers: list[Any] = [
            torch.optim.Muon(
                matrices,
                lr=settings.rate,
                weight_decay=settings.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(
                [self.model.lm_head.weight, *norms],
                lr=settings.rate,
                betas=(0.9, 0.98),
                weight_decay=0,
            ),
        ]
        self.step = self.seen = self.epoch = self.place = 0
        if self._state.exists():
            state = torch.load(self._state, weights_only=True, map_location=DEVICE)
            self.model.load_state_dict(state["model"])
            for optimizer, its in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(its)
            self.step, self.seen, self.epoch, self.place = state["at"]
        else:
            self._log({"settings": asdict(settings)})

    @property
    def _state(self) -> Path:
        return self.folder / "state.pt"

    def run(self) -> None:
        """Train to the end, from the saved state if there is one."""
        settings, held_out = (
            self.settings,
            self.corpus.examples(map(_passages, self.corpus.held_out)),
        )
        while self.seen < settings.tokens:
            batches = self.corpus.epoch(self.epoch)
            for batch in batches[self.place :]:
                if self.seen >= settings.tokens:
                    break
                loss = self._learn(batch)
                if self.step % settings.told_every == 0:
                    self._log({"loss": loss, **self.evaluate(held_out[: settings.told_of])})
                    self._save()
            else:
                self.epoch, self.place = self.epoch + 1, 0
        self._save()
        self._log({"at the end": self.evaluate(held_out)})
        self.model.half().save_pretrained(self.folder)

    def _learn(self, batch: Sequence[Example]) -> float:
        settings = self.settings
        warmup = (self.step + 1) / settings.rising_steps
        decay = (1 - self.seen / settings.tokens) / settings.falling_share
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = settings.rate * min(1, warmup, max(0.02, decay))
            optimizer.zero_grad()
        tokens, weights = padded(batch, settings.longest, settings.call_weight)
        counts = weights > 0
        logits = self.model.lm_head(self._hidden(tokens)[counts])
        nats = functional.cross_entropy(logits, tokens[:, 1:][counts], reduction="none")
        loss = (nats * weights[counts]).sum() / weights.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step, self.place = self.step + 1, self.place + 1
        self.seen += sum(len(ids) for ids, _ in batch)
        return float(loss.item())

    def _hidden(self, tokens: Any) -> Any:
        return self.model.model(tokens[:, :-1], use_cache=False).last_hidden_state

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """Return nats per token, of all and of calls, and the share of exact calls."""
        nats, right, of_calls, ends = [], [], [], []
        batch = self.settings.batch
        for first in range(0, len(examples), batch):
            tokens, _ = padded(examples[first : first + batch], self.settings.longest)
            with torch.no_grad():
                logits = self.model.lm_head(self._hidden(tokens))
            goal = tokens[:, 1:]
            loss = functional.cross_entropy(logits.flatten(0, 1), goal.flatten(), reduction="none")
            for row, (ids, calls) in enumerate(examples[first : first + batch]):
                span = slice(len(ids) - 1)
                nats.append(loss.view(goal.shape)[row, span].cpu().numpy())
                right.append((logits[row, span].argmax(-1) == goal[row, span]).cpu().numpy())
                of_calls.append(calls[1:])
                ends.append(calls[1:] & (ids[1:] == self.corpus.tokens.end))
        all_nats, all_right, call, end = map(np.concatenate, (nats, right, of_calls, ends))
        number = np.cumsum(end) - end
        wrong = np.unique(number[call & ~all_right])
        return {
            "nats": float(all_nats.mean()),
            "nats_of_calls": float(all_nats[call].mean()),
            "calls": int(end.sum()),
            "calls_exact": 1 - len(wrong) / max(int(end.sum()), 1),
        }

    def _log(self, what: Mapping[str, Any]) -> None:
        record = {"step": self.step, "tokens": self.seen, **what}
        print(time.strftime("%H:%M"), record, flush=True)
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def _save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "at": (self.step, self.seen, self.epoch, self.place),
        }
        beside = self._state.with_suffix(".new")
        torch.save(state, beside)
        os.replace(beside, self._state)


def main() -> None:
    """Train, or continue."""
    asked = options(__doc__, "dialogs", "folder", tokens=int(Settings.tokens), seed=Settings.seed)
    torch.set_num_threads(2)
    asked.folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(tokens=asked.tokens, seed=asked.seed)
    Training(Corpus(asked.dialogs, asked.folder, settings), asked.folder, settings).run()


if __name__ == "__main__":
    main()
