"""Damage on the words of a text as HTML: a tint for each, and why the most hurt ones are hurt.

A word that opens is a ``details`` element, so that it needs no script, on pages and in files.
"""

from collections.abc import Sequence
from html import escape
from itertools import islice

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.core.words import count, decimal, lost_likelihood, percent, rate
from fdkvc.models.answer_causes import Word
from fdkvc.models.damage import LEAST, LINE_BREAK, SPACE, Damage, HurtWord, RecordedDamage, Text

STRONGEST = 4.0
"""KL in nats at which the tint is strongest; the same for all, so that texts can be compared."""

WORST, NEEDED = 8, 2
"""Most words that are listed, and evicted words beside each."""

OTHERS = "function words and marks"

LEGEND = (
    '<div class="hurt-key">KL of a word, in nats: '
    + " ".join(
        f'<mark style="--share:{kl / STRONGEST:.2f}">{kl:g}{"+" if kl == STRONGEST else ""}</mark>'
        for kl in (0.5, 1, 2, STRONGEST)
    )
    + ' <span class="opens">outlined words</span> say why: click them, or Tab and Enter</div>'
)


def damage_sentences(damage: Damage, title: str) -> list[str]:
    """Say how large the damage is, where it is, and whether restoring entries undoes it."""
    words = damage.text.words
    kl = damage.of_words
    # Without the first token, which nothing predicts.
    mean = float(damage.kl[1:].mean())
    sentences = [
        f"With {title}, what the full cache expects becomes {lost_likelihood(mean)} less likely, a "
        f"KL of {decimal(mean)} nats per token."
    ]
    if damage.changed is not None:
        guesses = rate(float(damage.changed[1:].mean()))
        sentences.append(f"The model's best guess of the next token changes for {guesses}.")
    restored = damage.restored
    if restored:
        half = int(np.searchsorted(np.cumsum(np.sort(kl)[::-1]), kl.sum() / 2)) + 1
        damaged_kl = float(sum(kl[word] for word in restored))
        sentences.append(
            f"Half of this KL is in {half:,} of {count(len(words), 'word')}. Restoring the "
            f"evicted words that the {count(len(restored), 'most damaged word')} attend to changes "
            f"their KL from {decimal(damaged_kl, 1)} to {decimal(sum(restored.values()), 1)} nats."
        )
    return sentences


def damage_html(damage: Damage, title: str) -> str:
    """Return the text, each word tinted by its KL under a policy of this title."""
    explained = {hurt.word: hurt for hurt in damage.hurt}
    rows: dict[tuple[int, str], list[str]] = {}
    for index, word in enumerate(damage.text.words):
        html = _word_html(damage, index, explained.get(index))
        if html != SPACE:
            rows.setdefault((word.passage, damage.text.speaker(word)), []).append(html)
    passages = ""
    for (passage, speaker), words in rows.items():
        head = f"<b><i>{damage.text.parts[passage].turn}</i> {escape(speaker)}</b>"
        passages += f"<div>{head} {' '.join(words)}</div>"
    return (
        f'{LEGEND}<div class="hurt" tabindex="0" role="region" '
        f'aria-label="Damage to each word with {escape(title)}">{passages}</div>'
    )


def _word_html(damage: Damage, index: int, hurt: HurtWord | None) -> str:
    word = damage.text.words[index]
    kl = float(damage.of_words[index])
    text = escape(word.text)
    if word.text == LINE_BREAK or (word.end - word.first == 1 and word.text[0] == "<"):  # a mark
        text = f"<small>{text}</small>"
    if kl < LEAST:
        return text
    share = f'style="--share:{min(kl / STRONGEST, 1):.2f}"'
    if hurt is None:
        return f'<mark {share} title="KL {decimal(kl, 2)} nats">{text}</mark>'
    return (
        f'<details name="hurt"><summary {share}>{text}</summary>'
        f"<div>{_why_html(damage, hurt)}</div></details>"
    )


def _why_html(damage: Damage, hurt: HurtWord) -> str:
    """Say which evicted words the full cache attends to there, and the KL if they are restored."""
    kl = f"KL <b>{decimal(damage.of_words[hurt.word], 2)} nats</b>"
    if not hurt.causes:
        return f"{kl}. The full cache attends to nothing there that this policy has evicted."
    words = damage.text.words
    parts = damage.text.parts
    causes = sorted(hurt.causes, key=lambda cause: not damage.text.is_readable(cause.word))
    rows = "".join(
        f'<tr><th scope="row">{escape(words[cause.word].text)}</th>'
        f"<td>{parts[words[cause.word].passage].turn}</td><td>{percent(cause.share, 1)}</td>"
        f"<td>{percent(cause.largest)} in layer {cause.layer}, head {cause.head}</td></tr>"
        for cause in causes
    )
    if hurt.restored is not None:
        kl += f"; <b>{decimal(hurt.restored, 2)}</b> if the turn is read again with these restored"
    return (
        f"{kl}. Evicted words to which the full cache attends most there, readable ones first:"
        '<table><thead><tr><th scope="col">evicted word</th><th scope="col">turn</th>'
        '<th scope="col">attention</th><th scope="col">at most</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def worst_columns(text: Text, kl: Floats, hurt: Sequence[HurtWord] = ()) -> dict[str, list[str]]:
    """Return the readable words of the highest KL as columns, and then the sum of all others."""
    explained = {row.word: row for row in hurt}
    readable = np.array([*map(text.is_readable, range(len(text.words)))])
    falling = np.argsort(-kl, kind="stable").tolist()
    worst = [index for index in falling if readable[index] and kl[index] >= LEAST][:WORST]
    columns: dict[str, list[str]] = {
        "most damaged word": [text.words[index].text for index in worst],
        "turn": [f"{text.parts[text.words[index].passage].turn}" for index in worst],
        "KL, nats": [decimal(kl[index], 2) for index in worst],
    }
    if hurt:
        rows = [explained.get(index, HurtWord(index, None, ())) for index in worst]
        evicted = []
        for row in rows:
            words = filter(text.is_readable, (cause.word for cause in row.causes))
            evicted.append(", ".join(text.words[word].text for word in islice(words, NEEDED)))
        restored = ["" if row.restored is None else decimal(row.restored, 2) for row in rows]
        columns |= {"needs the evicted": evicted, "KL if restored": restored}
    last = OTHERS, "", f"{decimal(kl[~readable].sum(), 2)} in all", "", ""
    return {name: [*columns[name], cell] for name, cell in zip(columns, last, strict=False)}


MOST_ATTENDED = 8
"""Entries that get most attention, which are named."""


def attended_columns(recorded: RecordedDamage) -> dict[str, list[str]]:
    """Return the entries that get most attention as columns; not those of the last tenth."""
    mean = recorded.received.mean(axis=0)
    parts = recorded.text.parts
    early = mean[: len(mean) * 9 // 10]  # each has many later tokens
    tokens = np.argsort(-early, kind="stable")[:MOST_ATTENDED].tolist()
    word_of = dict[int, Word]()
    for word in recorded.text.words:
        word_of |= dict.fromkeys(range(*word.span), word)
    largest = [recorded.received[:, token] for token in tokens]
    return {
        "token": [f"{token:,}" for token in tokens],
        "of the word": [word_of[token].text for token in tokens],
        "turn": [f"{parts[word_of[token].passage].turn}" for token in tokens],
        "attention": [percent(float(mean[token]), 1) for token in tokens],
        "at most": [f"{percent(layers.max())} in layer {layers.argmax()}" for layers in largest],
    }
