"""A verdict checked with a language model: what its predictions lose on a few of the dialogs."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any, Unpack

from fdkvc.core.attention import KINDS, SPEAKERS
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count, decimal, percent
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.explain.notes import no_effect_notes, pinned_notes
from fdkvc.models.answers import FULL, Answers, run_answers
from fdkvc.models.numpy.head_eviction import deciding
from fdkvc.models.numpy.head_recordings import count_tokens
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import CANDIDATES, read_policy
from fdkvc.policies.base import Available
from fdkvc.runs.jobs import Execution
from fdkvc.verdict.plan import Verdict, named, unpinned_name

RIVAL = CANDIDATES[-1]
"""The best policy that scores by attention, as measured on a pretrained model."""

KL, RIGHT = "kl", "values_right_of_full"
"""What is compared."""

CLEARLY = 0.1
"""Difference in KL, in nats per token, that counts where too few dialogs have an interval."""

SAMPLE_TOKENS = 2_500
"""Most tokens of a sample: a pretrained model of 135 million parameters reads them with three
caches in some 20 seconds on two idle cores; one dialog alone takes one core."""

TRIED_DIALOGS = 32
"""Most dialogs that are encoded to find some that are short enough."""


@dataclass(frozen=True)
class Check:
    """What a model says of a verdict."""

    sentence: str
    contradicts: bool
    """Whether another policy loses less than the recommended one."""


def sample_of(
    model: AnyModel, transcripts: Sequence[Transcript], most: int = SAMPLE_TOKENS
) -> list[Transcript]:
    """Return dialogs with calls, of at most so many tokens in all: of different clusters first.

    If none is short enough, the first turns of one. Raises a ValueError if there is nothing to
    read.
    """
    seen, order = Counter[str](), list[tuple[int, Transcript]]()
    for dialog in transcripts:
        if any(demand.kind == "call" for demand in dialog.demands):
            order.append((seen[dialog.services], dialog))
            seen[dialog.services] += 1
    ordered = [dialog for _, dialog in sorted(order, key=lambda pair: pair[0])][:TRIED_DIALOGS]
    sample, room = list[Transcript](), most
    for dialog in ordered:
        with suppress(ValueError):  # it is longer than the model's context
            if (tokens := count_tokens(model, dialog)) <= room:
                sample.append(dialog)
                room -= tokens
    if not sample:
        begun = (_beginning(dialog, most // 2) for dialog in ordered)  # a word has two tokens
        sample = [*islice(filter(None, begun), 1)]
    if not sample:
        raise ValueError("no dialog is short enough for a model to check the verdict on it")
    return sample


def _beginning(dialog: Transcript, most: int) -> Transcript | None:
    """Return the first turns of a dialog with at most so many words; None if there are none."""
    turns = bisect_right([*accumulate(dialog.word_counts)], most)
    calls = tuple(call for call in dialog.calls if call.turn < turns)
    demands = tuple(demand for demand in dialog.demands if demand.turn < turns)
    if not demands:
        return None
    return replace(dialog, turns=dialog.turns[:turns], calls=calls, demands=demands)


def check_verdict(
    verdict: Verdict,
    tokens: Sequence[int],
    model: AnyModel,
    transcripts: Sequence[Transcript],
    **how: Unpack[Execution],
) -> Check:
    """Let a model read a few dialogs under the recommended policy and under `RIVAL`.

    The budget is the verdict's share of the mean length of dialogs of so many `tokens`. Raises a
    ValueError if there is no dialog to read, or no verdict.
    """
    if not verdict.policy:
        raise ValueError(f"there is nothing to check: {verdict.lead}")
    sample = sample_of(model, transcripts)
    read = sum(count_tokens(model, dialog) for dialog in sample)
    share = min(verdict.budget * len(tokens) / sum(tokens), 1.0)
    budget = max(1, round(share * read / len(sample)))
    names = dict.fromkeys((verdict.policy, RIVAL))
    if unpinned_name(verdict.policy) == RIVAL != verdict.policy:
        del names[RIVAL]
    settings = Answers((*map(read_policy, names),), (budget,), cut_text=False)
    shape = model.decoder.shape
    heads = deciding(settings.decides, shape.kv_heads, shape.layers)
    notes = no_effect_notes(settings.policies, Available(SPEAKERS, KINDS, words=True, **heads))
    notes += pinned_notes(sample, settings.policies, settings.budgets, model.tokens.prompt_size)
    table = run_answers(settings, model, sample, **how)
    table = table[table.metric.isin((KL, RIGHT))]
    means = mean_table(table).set_index(["policy", "metric"])
    values: Any = means["count"].get((FULL, RIGHT), 0)

    def under(write: Callable[[str], str]) -> str:
        return " and ".join(f"{write(name)} under {named(name)}" for name in names)

    mean: Any = means["mean"]
    sentence = (
        f"Checked with {model.name} on {count(len(sample), 'dialog')} ({read:,} tokens) with "
        f"{budget:,} entries, {percent(share)} of the text as recommended: the KL from the full "
        f"cache, in nats per token, is {under(lambda name: decimal(mean[name, KL], 2))}."
    )
    if values:
        kept = under(lambda name: f"{round(mean[name, RIGHT] * values)}")
        right = f"{count(values, 'value')} that the full cache gets right"
        sentence += f" Of {right}, {kept} stay right."
    sentence = " ".join([sentence, *notes])
    paired = paired_differences(table, RIVAL)
    paired = paired[paired.policy == verdict.policy]
    if paired.empty:
        return Check(sentence, False)
    better = paired.mean_diff.where(paired.metric != KL, -paired.mean_diff)
    sure, few = better[paired.significant.eq(True)], paired.significant.isna().all()
    if few and mean[verdict.policy, KL] - mean[RIVAL, KL] >= CLEARLY:
        sure = better
    if (sure <= 0).all() and (sure < 0).any():
        hedge = ", as far as so few dialogs tell" if few else ""
        conclusion = f"This contradicts the recommendation: {named(RIVAL)} loses less{hedge}."
        return Check(f"{sentence} {conclusion}", True)
    conclusion = "This agrees with the recommendation."
    if few or sure.empty or (sure < 0).any():
        sample_words = "so few dialogs" if few else "this sample"
        conclusion = f"The two are not distinguishable on {sample_words}."
    return Check(f"{sentence} {conclusion}", False)
