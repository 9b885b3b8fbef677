"""Compare labels for the weights of `learned` by what the bundled model then answers.

Reads train.json.xz as `benchmarks.research.held_out` does, and uses only dialogs that the model was
not trained on. Weights are fitted on two thirds of the clusters, on the model's own tokens, to the
pairs of a turn and a token where

- (a) a later call needs a value whose newest mention has the token;
- (b) later text attends to the token most, mean over heads and queries with the full cache;
- (c) the text after the turn loses most nats when the token's word is masked from then on.

(b) and (c) mark the highest tenth of a dialog's pairs. Printed are the answers to dialogs of the
other clusters under each, and how well (a) is predicted with past attention as a feature.

    python -m benchmarks.research.labels train.json.xz [--dialogs 90] [--answers 80]
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import mannwhitneyu
from threadpoolctl import threadpool_limits

from benchmarks import options
from benchmarks.research.held_out import HELD_OUT, parted, read_dialogues
from benchmarks.research.learned import WITHOUT
from fdkvc.attention import Bools, Ints
from fdkvc.corpora.formats import read_transcripts
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.answers import (
    Answers,
    answers_paired,
    answers_summary,
    encode_dialog,
    run_answers,
)
from fdkvc.experiments.learning import (
    Weights,
    features_of,
    fit,
    needed,
    pick_pairs,
    split_by_cluster,
)
from fdkvc.experiments.statistics import Doubles
from fdkvc.lm import BUNDLED
from fdkvc.lm.decoder import Decoder, attention
from fdkvc.lm.head_recordings import head_recordings
from fdkvc.lm.language_model import LanguageModel, load_language_model
from fdkvc.lm.text_cache import TextCache, later_tokens, read
from fdkvc.policies import policy_named
from fdkvc.policies.learned import FEATURES
from fdkvc.words import decimal, ranged, signed

BUDGETS, WORDS, SEED = (48, 96), 24, 0
NEEDED = "(a) needed by later calls"
USED = [name for name in FEATURES if name not in WITHOUT]
PAST = ("gathered", "last turn")
"""Attention of the heads on a token so far, and in the turn, as features."""


class MaskedCache(TextCache):
    """A cache that loses some tokens once a text has been read up to an end."""

    def __init__(self, decoder: Decoder, tokens: Ints, end: int) -> None:
        super().__init__(decoder)
        self.tokens, self.end = tokens, end

    def _evict(self) -> None:
        if self.count >= self.end:
            kept = np.setdiff1d(np.arange(self.count), self.tokens)
            heads = self.evicted_in.shape[:2]
            self._set_attended(np.broadcast_to(kept, (*heads, len(kept))))


def word_of(recording: Recording, token: int) -> Ints:
    """Return the tokens of the word that a token is a piece of."""
    texts = [each.text for turn in recording.tokens for each in turn]
    starts = [
        not text[:1].isalnum() or not before[-1:].isalnum()
        for before, text in zip(["", *texts], texts, strict=False)
    ]
    first = max(at for at in range(token + 1) if starts[at])
    after = [at for at in range(token + 1, len(texts)) if starts[at]]
    return np.arange(first, after[0] if after else len(texts))


def record(model: LanguageModel, transcript: Transcript) -> tuple[Recording, Doubles]:
    """Return a recording, and the attention of each token to each, mean over heads (N, N)."""
    passages = encode_dialog(model, transcript)
    cache = model.full()
    for passage in passages:
        read([cache], passage.ids)
    shape, n = model.decoder.shape, cache.count
    rows = shape.layers * shape.kv_heads
    queries = cache.vectors("queries").reshape(rows, shape.group, n, shape.head_width)
    keys = cache.vectors("keys").reshape(rows, n, shape.head_width)
    weights = attention(queries, keys, later_tokens(n)).mean(axis=(0, 1), dtype=float)
    return head_recordings(cache, transcript, passages)[0], weights


def nats_lost(model: LanguageModel, recording: Recording, turns: Ints, tokens: Ints) -> Doubles:
    """Return the nats that the text after each turn loses without each token's word (n,)."""
    ends = np.array(recording.starts)[turns + 1].tolist()
    words = [word_of(recording, token) for token in tokens.tolist()]
    caches = [model.full()]
    caches += [MaskedCache(model.decoder, *each) for each in zip(words, ends, strict=True)]
    lost, last = np.zeros(len(caches)), None
    for passage in encode_dialog(model, recording.transcript):
        logits = read(caches, passage.ids)
        if last is not None:
            before = np.concatenate([last, logits[:, :-1]], axis=1)
            before -= before.max(axis=-1, keepdims=True)
            came = before[:, np.arange(len(passage.ids)), passage.ids]
            lost += (np.log(np.exp(before).sum(axis=-1)) - came).sum(axis=1)
        last = logits[:, -1:].copy()
        for cache in caches:
            cache.end_turn()
    return np.asarray(lost[1:] - lost[0])


def highest(values: Sequence[Doubles]) -> Bools:
    """Mark the highest tenth of each dialog's values; all dialogs in one row."""
    return np.concatenate([each > np.quantile(each, 0.9) for each in values])


def fitted(model: LanguageModel, training: Sequence[Transcript]) -> dict[str, Weights]:
    """Fit to each label; print how attention helps to predict (a), on held-out clusters."""
    features, labels, later, past, inside = [], [], [], [], []
    of_masked, lost = [], []
    _, apart = split_by_cluster(training, SEED)
    others = {each.name for each in apart}
    for at, transcript in enumerate(training):
        recording, weights = record(model, transcript)
        turn, token = pick_pairs(recording, np.random.default_rng([SEED, at]))
        starts = np.array(recording.starts)
        sums = np.concatenate([np.zeros((1, len(weights))), weights.cumsum(axis=0)])
        until, before = sums[starts[turn + 1], token], sums[starts[turn], token]
        after = np.maximum(len(weights) - starts[turn + 1], 1)
        features.append(features_of(recording, turn, token))
        labels.append(needed(recording, turn, token))
        later.append((sums[-1, token] - until) / after)
        past.append(np.log(1e-6 + np.stack([until, until - before], axis=1)))
        inside.append(np.full(len(turn), transcript.name in others))
        some = slice(0, WORDS)
        of_masked.append(features[-1][some])
        lost.append(nats_lost(model, recording, turn[some], token[some]))
    x, y, apart_ = np.concatenate(features), np.concatenate(labels), np.concatenate(inside)
    both, columns = np.hstack([x, np.concatenate(past)]), (*FEATURES, *PAST)
    print("probability that a needed token scores above another, clusters held out")
    for title, names in {
        "without attention": USED,
        "with what it has gathered": [*USED, PAST[0]],
        "with that of the last turn, too": [*USED, *PAST],
        "attention alone": PAST,
    }.items():
        scores = fit(both[~apart_], y[~apart_], names, columns).scores(both[apart_])
        above = mannwhitneyu(scores[y[apart_]], scores[~y[apart_]]).statistic
        print(f"  {title}: {above / y[apart_].sum() / (~y[apart_]).sum():.3f}")
    print(f"{len(training)} dialogs, {100 * y.mean():.1f} % of pairs needed by later calls")
    return {
        NEEDED: fit(x, y, USED),
        "(b) attended to later": fit(x, highest(later), USED),
        "(c) nats lost if masked": fit(np.concatenate(of_masked), highest(lost), USED),
    }


def main() -> None:
    """Fit, let the model answer, and print."""
    asked = options(__doc__, "train", dialogs=90, answers=80)
    _, held_out = parted(read_dialogues(asked.train), HELD_OUT, SEED)
    transcripts = read_transcripts(json.dumps(held_out).encode())
    order = np.random.default_rng(SEED).permutation(len(transcripts)).tolist()
    training, rest = split_by_cluster([transcripts[at] for at in order], SEED)
    model = load_language_model(BUNDLED)
    with threadpool_limits(1, user_api="blas"):
        weights = fitted(model, training[: asked.dialogs])
    policies = {key: policy_named(key) for key in ("fifo", "surprisal", "learned")}
    with tempfile.TemporaryDirectory(dir=".", prefix="labels") as folder:
        for at, (title, each) in enumerate(weights.items()):
            path = Path(os.path.relpath(folder)) / f"{at}.json"
            path.write_text(json.dumps({"features": each.record()}), "utf-8")
            policies[title] = policy_named("learned", weights=path.as_posix())
            heaviest = sorted(each.record().items(), key=lambda one: -abs(one[1]["weight"]))
            print(title, *(f"{name} {found['weight']:+.2f}" for name, found in heaviest[:5]))
        settings = Answers(tuple(policies.values()), BUDGETS, cut_text=False, write_calls=True)
        found = run_answers(settings, model, rest[: asked.answers])
    titles = {policy.name: title for title, policy in policies.items()}
    means = answers_summary(found.answers)
    paired = answers_paired(found.answers, policies[NEEDED].name)
    tables = {"mean": (means, decimal), "mean_diff": (paired, signed)}
    for metric, factor in {"calls_exact_of_full": 100, "values_right": 100, "nats": 1}.items():
        print(f"{metric} at {BUDGETS}, and the difference from {NEEDED}")
        for name, title in titles.items():
            figures = [
                ranged(factor * mean, factor * low, factor * high, 3 if factor == 1 else 1, write)
                for column, (table, write) in tables.items()
                for mean, low, high in table.loc[
                    (table.policy == name) & (table.metric == metric),
                    [column, "ci_low", "ci_high"],
                ].itertuples(index=False)
            ]
            print(f"  {title}: {'; '.join(figures)}")


if __name__ == "__main__":
    main()
