"""What the card says: three sentences, a table of four ways, and one of all.

Everything said of ways is a cell of `short_grid` or `card_grid`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fdkvc.core.statistics import MIN_CLUSTERS
from fdkvc.core.words import count, listed, lost_likelihood, percent, ranged, written_bytes
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import read_policy
from fdkvc.policies.base import KEPT
from fdkvc.policies.ways import MESSAGES, way_words
from fdkvc.runs.grid import Grid
from fdkvc.verdict.card import (
    CLEARLY,
    MEASURED_DIALOGS,
    MEASURED_VALUES,
    MOSTLY_UNCLEARED,
    PAYS,
    PAYS_TOKENS,
    Card,
    Reading,
    Way,
    pays,
)
from fdkvc.verdict.search import WITHOUT_CALLS
from fdkvc.verdict.settings import settings_of, settings_of_limit
from fdkvc.verdict.today import STOPS, TodayLoss, ValueCount

FITTED = "this project; "
"""How the source of a policy begins that names the data to which it was fitted."""

MEASURED, PARTLY, BY_WORDS, GUESS = "measured", "partly measured", "by words only", "a guess"
"""How sure the card is."""

WORD_FOR_WORD = "a value counts as kept while it stands word for word in what stays"
"""Why a number by words is no surer."""

UNREAD = "not read"
"""How sure a way is that only a model can tell of, and that none has read."""

SMALL = 0.1
"""The share of a conversation up to which the card says why so little is enough."""

SPLITS = 1.0
"""From how many tokens a character on a tokenizer splits letters. SmolLM2 has 0.2 to 0.4 in English
and Spanish, 0.7 in Russian, 1.2 in Arabic, 1.6 in Japanese, and 1.9 to 2.2 in Chinese."""

HABITS, MAX_WAYS = (MESSAGES, "shift", "sink"), 5
"""What people do, and the most ways in the picture and the short table."""

UNCOUNTED_TOOLS = (
    "# tools described outside of the messages are not counted: add room for them"
)
"""What begins the lines to copy then."""

VALUES_KEPT = "values kept, by words"
SIZE, READ_AGAIN = "tokens (of average)", "tokens read again"
RIGHT_AND_LIKELY = "right; less likely"
"""Heads of columns."""


def card_sentences(card: Card) -> tuple[str, ...]:
    """Return what is lost today, if that is known, what to set, and how sure that is."""
    sentences = [setting_sentence(card), others_sentence(card), _basis(card)]
    loss = card.today
    if loss is not None:
        today = today_sentence(loss, card.unit, card.target)
        sentences = [today, today_notes(loss, card.unit), today_certainty(card), *sentences]
    return tuple(filter(None, sentences))


def _basis(card: Card) -> str:
    """Return how sure a card is, and what it expects of other conversations."""
    return f"{certainty_sentence(card)} {promise_sentence(card)}".strip()


# ------------------------------------------------------------------------------- today


def today_sentence(loss: TodayLoss, unit: str, target: float) -> str:
    """Return what is lost today, in tokens of `unit`, and whether to keep the limit."""
    sentence = _loss_sentence(loss, unit)
    if not loss.is_enough(target):
        return sentence
    if loss.count.lost:
        kept = f"{_floor(loss.count.kept)} are kept, and {percent(target)} are asked"
        return f"{sentence} {kept}: keep this limit."
    return f"{sentence} Keep this limit."


def today_notes(loss: TodayLoss, unit: str) -> str:
    """Return what a value is, and what is not counted; "" if there is nothing to say."""
    parts = []
    if loss.count.values:
        value = (
            "A value is what a tool call needs from earlier in its conversation, such as a booking "
            "code"
        )
        if loss.without_calls and loss.count.lost:
            value += (
                "; where only an earlier call still has it, it counts as lost, though a model may "
                "know it"
            )
        parts.append(value)
    if loss.missing:
        stand = "stands" if loss.missing == 1 else "stand"
        needed = count(loss.missing, "needed value")
        parts.append(f"Not counted: {needed} that {stand} nowhere in the text")
    if loss.without_tools:
        parts.append(
            "Tools described outside of the messages are not counted: leave room for them"
        )
    if loss.token_rate > SPLITS and unit == Encoding.name:
        parts.append(
            f"{unit} counts {loss.token_rate:.1f} tokens for a character of this text, and models "
            "made for its language fewer: choose whose tokens count"
        )
    return f"{'. '.join(parts)}." if parts else ""


def today_certainty(card: Card) -> str:
    """Return how sure what is lost today is; "" where the setting says so beside it."""
    loss = card.today
    if loss is None or not (card.advice.keeps_today or purpose(card)):
        return ""
    if not loss.longer:
        condition = f"if your model counts no more tokens than {card.unit} does"
        if loss.without_tools:
            condition += ", and the tools fit beside them"
        return f"How sure: certain, {condition}."
    reading = card.reading_within_today
    if card.read is not None and card.best is not None and reading is not None:
        return (
            f"Keep this limit: at {card.best.tried:,} tokens, by the same way, the words that "
            f"{card.read.model} expects with the full cache become {lost_likelihood(reading.kl)} "
            "less likely."
        )
    reader = "no model was run" if card.read is None else "no model has read at this limit"
    reasons = [*_few_conversations(card), f"{reader}: {WORD_FOR_WORD}"]
    return f"How sure: {way_certainty(card, None)}. {_sentence(reasons)}"


def _loss_sentence(loss: TodayLoss, unit: str) -> str:
    counted = loss.count
    if not loss.longer:
        return (
            f"Today nothing is lost at {count(loss.today.tokens, 'token')} of {unit}: the longest "
            f"conversation has {loss.longest:,}."
        )
    if not counted.values:
        number = "all" if 1 < loss.longer == loss.dialogs else f"{loss.longer:,} of"
        longer = f"{number} {count(loss.dialogs, 'conversation')}"
        if loss.today.policy == STOPS:
            return f"Today {longer} stop at the limit; no call says what of the rest mattered."
        return f"Today you lose text of {longer}; no call says which of it mattered."
    if not counted.lost:
        longer = f"{loss.longer:,} of {count(loss.dialogs, 'conversation')}"
        exceeding = f"exceed{'s' if loss.longer == 1 else ''} it, up to {loss.longest:,}"
        return (
            f"Today you lose none of {count(counted.values, 'value')} that calls need at "
            f"{count(loss.today.tokens, 'token')} of {unit}, though {longer} {exceeding}."
        )
    lossy = counted.lossy_dialogs
    which = "all" if lossy == counted.dialogs else f"{lossy:,} of the"
    dialogs = f", in {which} {counted.dialogs:,} conversations that need some"
    among = dialogs if counted.dialogs > 1 else ""
    sentence = (
        f"Today you lose {counted.lost:,} of {count(counted.values, 'value')} that calls "
        f"need{among}."
    )
    if loss.larger_is_enough:
        sentence += (
            f" Nothing would be lost from {count(loss.longest, 'token')} of {unit} on, the "
            "length of the longest conversation, if your model's context is that long."
        )
    return sentence


# ------------------------------------------------------------------------------- what to set


def setting_sentence(card: Card) -> str:
    """Return which way to set, with which size, and what is as good."""
    if not card.clusters and card.read is None:
        return (
            "No call in these conversations needs a value said before, so only a model can tell "
            "which size is enough: until one has read them, keep today's limit."
        )
    advice = card.advice
    best = advice.setting
    if best is None:
        return _no_setting(card)
    words = "Or set" if limit_settings(card) else "Set"
    if purpose(card):
        words = "To store less than today" if advice.keeps_today else "Instead of such a limit"
        words += ", set"
    share = percent(best.tried / card.tokens)
    words += f" {best.tried:,} tokens of {card.unit} ({share} of the average conversation): "
    words += _imperative(best.policy)
    if best.values is not None and best.values.lost and not best.sized_by_model:
        words += f", which loses {best.values.lost:,} of {count(best.values.values, 'value')}"
    if card.own_tokens:
        stored = written_bytes(best.slots * card.shape.entry_bytes)
        full = written_bytes((best.slots + advice.saved) * card.shape.entry_bytes)
        words += f", {stored} instead of {full} in {card.shape.name}"
    reading = best.reading
    if card.read and reading and not reading.reaches(card.target):
        few = "" if reading.measures else ": too few for a measurement"
        words += (
            f", but {card.read.model} got only {reading.right} of {count(reading.values, 'value')} "
            f"the same as with the full cache{few}"
        )
    return f"{words}."


def purpose(card: Card) -> str:
    """Return what a setting is for that today's limit, or a larger one, does without; else ""."""
    advice = card.advice
    if advice.setting is None or not advice.stores_less:
        return ""
    return "to store less" if advice.keeps_today else "instead"


def others_sentence(card: Card) -> str:
    """Return what the setting leaves to do, what is as good and what needs less; "" if nothing."""
    advice = card.advice
    best = advice.setting
    parts = []
    if best is None:
        return ""
    if not best.in_engines:
        parts.append(f"This takes this project's cache in transformers{_why_no_engine(card)}")
    if best.uncleared:
        parts.append(
            f"In {percent(best.uncleared)} of them clearing is not enough: drop the oldest "
            "messages, too"
        )
    if best.refused > 0:
        parts.append(
            f"After {_refused_turns(best.refused)} of the turns what stays is no valid request, "
            "for example a tool result without its call: services such as OpenAI's refuse it"
        )
    if card.ties:
        ties = listed([f"“{way_words(tie.policy)}”" for tie in card.ties])
        parts.append(f"As good here: {ties}; this one is the simplest")
    for smaller in advice.offered[1:]:
        share = percent(smaller.tried / card.tokens)
        words = f"“{way_words(smaller.policy)}”, in this project's cache for transformers,"
        parts.append(f"{words} needs only {count(smaller.tried, 'token')} ({share})")
    return f"{'. '.join(parts)}." if parts else ""


def _why_no_engine(card: Card) -> str:
    """Return why each way that engines have is not set; "" if none was tried."""
    names = dict[str, list[str]]()
    for row in card.ways:
        if row.in_engines:
            names.setdefault(_lack(card, row), []).append(f"“{way_words(row.policy)}”")
    lacks = [f"{listed(ways)} ({lack})" for lack, ways in names.items()]
    return f". Why no way of an engine: {', '.join(lacks)}" if lacks else ""


def _lack(card: Card, candidate: Way) -> str:
    """Return why a way that engines have is not the one to set."""
    if candidate.size is None:
        kept = f"under {percent(card.target)} of the values kept"
        return f"{kept} with up to {percent(1 - PAYS)} of the average"
    if not candidate.keeps_start:
        return "the first tokens lost, which a model needs"
    if candidate.uncleared > MOSTLY_UNCLEARED:
        return "mostly not enough alone"
    stored = card.advice.stored
    saved = stored - candidate.slots
    if not pays(saved, stored):
        return f"{_too_little(saved)} saved"
    return UNREAD if candidate.reading is None else "a model loses more"


def _refused_turns(share: float) -> str:
    return "under 1 %" if share < 0.01 else percent(share)


def _no_setting(card: Card) -> str:
    """Return why it does not pay to evict, or to store less than today."""
    best = card.best
    other = "other " if card.advice.keeps_today else ""
    why = f"no {other}way tried keeps {percent(card.target)} of what calls need with up to "
    why += f"{percent(1 - PAYS)} of the average conversation's tokens"
    if not card.clusters:
        why = f"in {percent(WITHOUT_CALLS)} of the text, every way read loses over {CLEARLY} nats"
    if best is not None:
        saved = round(card.advice.saved)
        why = f"“{way_words(best.policy)}” would save {count(saved, 'token')}, and "
        why += f"{_too_little(saved)} is too little gain"
    if card.advice.keeps_today:
        return f"To store less does not pay: {why}."
    return f"It does not pay to evict here, keep all tokens ({card.tokens:,.0f} on average): {why}."


def _too_little(saved: float) -> str:
    """Return the bound below which so many tokens are too few to save."""
    bound = f"{PAYS_TOKENS} tokens" if saved < PAYS_TOKENS else percent(PAYS)
    return f"under {bound}"


def _imperative(name: str) -> str:
    """Return a way as the end of a sentence that says what to do."""
    words = way_words(name)
    in_sentence = words[0].lower() + words[1:]
    if name == "shift":
        return f"use {in_sentence}"
    whole = read_policy(name).reads_again or words.endswith(KEPT)
    return in_sentence if whole else f"evict entries by {words}"


# ------------------------------------------------------------------------------- how sure


def certainty(card: Card) -> str:
    """Return how sure the card is, in few words."""
    return way_certainty(card, card.main_way)


def way_certainty(card: Card, candidate: Way | None) -> str:
    """Return how sure a way's numbers are: no surer than the card's conversations allow."""
    if card.dominating or 0 < card.clusters < MIN_CLUSTERS:
        return GUESS
    if candidate is not None and candidate.reading is not None:
        return MEASURED if candidate.reading.measures else PARTLY
    if card.clusters:
        return BY_WORDS
    return UNREAD if card.read is None or candidate is not None else PARTLY


def certainty_sentence(card: Card) -> str:
    """Return how sure the card is, and why."""
    best = card.main_way
    read = card.read
    parts = []
    word = certainty(card)
    if not card.clusters and read is None:
        return ""
    parts += _few_conversations(card)
    if read is None:
        parts.append(f"no model was run: {WORD_FOR_WORD}")
    else:
        total = count(read.dialogs + read.unread, "conversation")
        among = f"{read.dialogs} of {total} that can be checked"
        among += f" ({read.partly_read} in part)" if read.partly_read else ""
        if best is not None and best.reading is not None:
            among += _lost_words(best, best.reading, card.target)
        parts.append(f"{read.model} has read {among}")
        if word == PARTLY and card.clusters:
            parts.append(
                f"a measurement needs {MEASURED_VALUES} values in {MEASURED_DIALOGS} conversations"
            )
        parts += _beside_words(card)
    parts += _why_small(card)
    if best is not None and best.guessed:
        parts.append("its size is estimated without a model")
    source = read_policy(best.policy).core.source if best is not None else ""
    if source.startswith(FITTED):
        data = source.removeprefix(FITTED)
        parts.append(f"this way was {data}, so other conversations may lose more")
    return f"How sure: {word}. {_sentence(parts)}"


def _sentence(parts: Sequence[str]) -> str:
    """Return parts as one sentence."""
    joined = "; ".join(parts)
    return f"{joined[0].upper()}{joined[1:]}."


def _few_conversations(card: Card) -> list[str]:
    """Return why a card's conversations tell little of others, if they do."""
    if card.dominating:
        few = "one conversation has"
        if card.dominating > 1:
            few = f"{card.dominating:,} conversations of one task or the same services have"
        return [f"{few} nearly all of the values, so little is known of others"]
    if not 0 < card.clusters < MIN_CLUSTERS:
        return []
    sets = count(card.dialogs, "conversation")
    if card.clusters < card.dialogs:
        sets += f" of {count(card.clusters, 'kind')} (by task or services)"
    kinds = "kinds " if card.clusters < card.dialogs else ""
    return [f"it rests on {sets}, and fewer than {MIN_CLUSTERS} {kinds}tell little of others"]


def _why_small(card: Card) -> list[str]:
    """Return why a very small size is enough, by how many values."""
    best = card.main_way
    if best is None or best.tried > SMALL * card.tokens or not best.values:
        return []
    if best.sized_by_model or best.size is None:
        return []
    values = best.values.values
    return [
        f"so small a size is enough because {values - best.values.lost:,} of "
        f"{count(values, 'value')} that calls need stood in the {best.tried:,} tokens that it "
        "keeps, and a call that needs another one loses it"
    ]


def _beside_words(card: Card) -> list[str]:
    """Return whether words or the model gave the size, and what words gave.

    Words are told of the recommended way alone, not of a smaller one that is set for it.
    """
    best = card.main_way
    words = card.by_words
    sized = best is not None and best.sized_by_model
    parts = ["its size is by words, and longer reading may find another"]
    if best is None:
        parts = []
    elif best.guessed:
        parts = ["longer reading may find another size"]
    elif sized:
        parts = ["the model found this size, by these values, so others may keep less"]
    if words is None:
        return parts if sized else []
    if best != card.best:
        return parts
    if best is None or best.policy != words.policy:
        name = way_words(words.policy)
        return [*parts, f"by words it would be “{name}” with {words.tried:,} tokens"]
    if sized:
        size_words = "the same" if best.tried == words.tried else f"{words.tried:,}"
        parts = [f"{parts[0]} (words gave {size_words})"]
    return parts


FEWER_RIGHT = "in fifteen other files Qwen2.5-Coder-0.5B got 81 % where words said 92 %"
"""What benchmarks/research/calibration_model.py found; see results.md."""

RIGHT_OF_EXPECTED = 0.81 / 0.92
"""At this rate of theirs, the low ends of all ten cards of later files held."""


def promise_sentence(card: Card) -> str:
    """Return what the setting keeps of other conversations, beside what was asked."""
    if card.promise is None or card.advice.setting != card.best:
        return ""
    mean, low, high = card.promise.mean, card.promise.low, card.promise.high
    words = ranged(mean, low, high, 0, percent)
    lead = "In conversations that did not choose it"
    asked = f"asked: {percent(card.target)}"
    if certainty(card) == MEASURED:
        return f"{lead}, the words of {words} of the values stay; {asked}."
    rate = RIGHT_OF_EXPECTED
    fewer = ranged(rate * mean, rate * low, rate * high, 0, percent)
    return (
        f"{lead}, expect a model to get {fewer} of the values as with the full cache; {asked}. The "
        f"words of {words} stay, but {FEWER_RIGHT}."
    )


def _lost_words(best: Way, reading: Reading, target: float) -> str:
    """Return what a model lost under the recommended way, and whether that is too much."""
    if not reading.values:
        return (
            f": under “{way_words(best.policy)}” the words that the full cache expects become "
            f"{lost_likelihood(reading.kl)} less likely, which is all that was compared"
        )
    ends = "too few conversations, or too unequal ones, for an interval"
    if not math.isnan(reading.low):
        ends = f"{percent(reading.low)} to {percent(reading.high)}"
    words = f": {reading.right} of {count(reading.values, 'value')} stay the same as with the full "
    words += f"cache ({ends})"
    if not reading.reaches(target):
        words += f", fewer than the {percent(target)} asked"
    return words


# ------------------------------------------------------------------------------- tables


def shown_ways(card: Card) -> list[Way]:
    """Return the ways of the picture and of the short table: what is set, and what people do.

    Without calls, that and those under which a model loses least.
    """
    by_name = {row.policy: row for row in card.ways}
    names = [*by_name]
    if card.clusters:
        names = [card.today.today.policy, *HABITS] if card.today else [*HABITS]
    leading = card.advice.offered or filter(None, [card.best])
    ways = {row.policy: row for row in leading}
    for name in names:
        if name in by_name:
            ways.setdefault(name, by_name[name])
    return [*ways.values()][:MAX_WAYS]


def short_grid(card: Card) -> Grid:
    """Return the table of a few ways: those of the picture, and today's limit."""
    leading = card.advice.offered
    best = card.advice.setting
    rows = [_short_row(card, candidate) for candidate in shown_ways(card)]
    if best is not None:
        rows[0][0] = f"{_mark(card)}: {rows[0][0]}"
    if card.today is not None:
        rows.insert(len(leading), _today_row(card, card.today))
    heads = ["way", VALUES_KEPT, SIZE, READ_AGAIN, "how sure", "drawback"]
    unsaid = {VALUES_KEPT: "", READ_AGAIN: "–", "drawback": ""}
    unsaid["how sure"] = way_certainty(card, best)
    return Grid(heads, rows).without_same(unsaid)


def _mark(card: Card) -> str:
    """Return what marks the way of the setting, as `today` does that of today."""
    return purpose(card) or "set"


def _short_row(card: Card, candidate: Way) -> list[str]:
    return [
        way_words(candidate.policy),
        "" if candidate.values is None else _values_cell(candidate.values),
        f"{candidate.tried:,} ({percent(candidate.tried / card.tokens)})",
        _reread_cell(candidate.reread),
        _how_sure(card, candidate),
        ", ".join(drawbacks(card, candidate)),
    ]


def _today_row(card: Card, loss: TodayLoss) -> list[str]:
    name = "stop" if loss.today.policy == STOPS else way_words(loss.today.policy)
    values = _values_cell(loss.count)
    cells = [f"today: {name}", values, f"{loss.today.tokens:,}", _reread_cell(loss.reread)]
    drawback = _refused_words(loss.refused) if loss.refused > 0 else ""
    return [*cells, way_certainty(card, None) if values else "", drawback]


def _refused_words(share: float) -> str:
    return f"services refuse {_refused_turns(share)} of requests"


def _reread_cell(tokens: float) -> str:
    return "–" if math.isnan(tokens) else f"{tokens:,.0f}"


def _values_cell(counted: ValueCount) -> str:
    """Return the share of values that are kept, and how many of how many."""
    if not counted.values:
        return ""
    return f"{_floor(counted.kept)} ({counted.values - counted.lost:,} of {counted.values:,})"


def _how_sure(card: Card, candidate: Way) -> str:
    """Return the cell that says how sure a way's size is."""
    reading = candidate.reading
    word = way_certainty(card, candidate)
    if reading is not None and reading.values:
        return f"{word}: {reading.right} of {reading.values} the same"
    # Without calls, no letters told a size.
    return f"{GUESS}: no model" if candidate.guessed and card.clusters else word


def drawbacks(card: Card, candidate: Way) -> list[str]:
    """Return what speaks against a way, however sure its size is."""
    words = []
    if not candidate.in_engines:
        words.append("needs this project's cache")
    if candidate.size is None:
        words.append(f"under {percent(card.target)}")
    if not candidate.keeps_start:
        words.append("loses the first tokens")
    if candidate.refused > 0:
        words.append(_refused_words(candidate.refused))
    if candidate.uncleared:
        words.append("not enough alone")
    return words


def table_note(card: Card) -> str:
    """Return which ways never reach the target; "" if all do."""
    never = [candidate for candidate in card.ways if candidate.size is None]
    cells = [f"{way_words(row.policy)} ({_best_words(row)})" for row in never]
    lead = f"Less than {percent(card.target)} even with {percent(1 - PAYS)} of the average"
    return f"{lead} conversation's tokens: {', '.join(cells)}." if cells else ""


def _floor(share: float) -> str:
    """Return a share so that one below a whole percentage does not read as that."""
    # Some more, as 1 − 4/5 is 0.19999… in binary.
    thousandths = math.floor(1000 * share + 1e-6)
    return percent(thousandths / 1000, digits=0 if thousandths % 10 == 0 else 1)


def _best_words(candidate: Way) -> str:
    """Return the most that a way keeps at any size tried, or who found that it is not enough."""
    if candidate.sized_by_model:
        return "not enough as the model reads it"
    return f"at best {_floor(candidate.recall)}"


def card_grid(card: Card) -> Grid:
    """Return the table of all ways with their policies, the recommended one marked."""
    rows = []
    for candidate in card.ways:
        name, _, size, reread, sure, _ = _short_row(card, candidate)
        if candidate == card.advice.setting:
            name = f"{_mark(card)}: {name}"
        if candidate.size is None:
            size = (
                f"over {percent(1 - PAYS)} of the average ({_best_words(candidate)} in less)"
            )
        read = "" if candidate.reading is None else candidate.reading.cell
        rows.append([name, size, reread, sure, read, candidate.forgets, candidate.policy])
    heads = ["way", SIZE, READ_AGAIN, "how sure", RIGHT_AND_LIKELY, "forgets", "policy"]
    return Grid(heads, rows).without_same({RIGHT_AND_LIKELY: ""})


def settings(card: Card) -> dict[str, str]:
    """Return what to copy, by engine: a limit that loses nothing, and what sets ways."""
    return limit_settings(card) | way_settings(card)


def limit_settings(card: Card) -> dict[str, str]:
    """Return what sets a larger limit that loses nothing in today's engine, if one is needed."""
    loss = card.today
    if loss is None or not loss.larger_is_enough or card.advice.keeps_today:
        return {}
    return _with_tools(card, settings_of_limit(loss, card.unit, estimated=_is_estimated(card)))


def way_settings(card: Card) -> dict[str, str]:
    """Return what sets the recommended way and, where one is smaller, this project's, by engine."""
    suffix = f", {purpose(card)}" if purpose(card) else ""
    lines = dict[str, str]()
    for candidate in card.advice.offered:
        own_lines = settings_of(
            candidate, card.tokens, card.unit, estimated=_is_estimated(card)
        )
        lines |= {f"{engine}{suffix}": line for engine, line in own_lines.items()}
    return _with_tools(card, lines)


def _is_estimated(card: Card) -> bool:
    """Whether sizes are counted by another tokenizer than that of the model to set."""
    return card.unit == Encoding.name and not card.own_tokens


def _with_tools(card: Card, lines: Mapping[str, str]) -> dict[str, str]:
    """Return lines to copy that say, where it is so, that tools are not counted."""
    tools = f"{UNCOUNTED_TOOLS}\n" if card.today and card.today.without_tools else ""
    return {engine: f"{tools}{line}" for engine, line in lines.items()}


# ------------------------------------------------------------------------------- for a script


def card_record(card: Card) -> dict[str, Any]:
    """Return the card in values that JSON can hold: its fields, and what is said of them."""
    # Without these: `asdict` would copy all that they have, a table among it.
    fields = asdict(replace(card, read=None, today=None))
    del fields["read"]
    if (loss := card.today) is not None:
        fields["today"] = {
            **asdict(loss.today),
            **asdict(loss.count),
            "recall": loss.count.kept,
            "sentence": today_sentence(loss, card.unit, card.target),
            "how_sure": today_certainty(card),
        }
    fields["ways"] = [_way_record(card, candidate) for candidate in card.ways]
    fields |= {
        "sentence": setting_sentence(card),
        "how_sure": certainty(card),
        "basis": _basis(card),
        "pays": card.advice.setting is not None,
        "settings": settings(card),
        "read_by": None if card.read is None else card.read.model,
    }
    record: dict[str, Any] = _plain(fields)
    return record


def _way_record(card: Card, candidate: Way) -> dict[str, Any]:
    return {
        "way": way_words(candidate.policy),
        "share": (candidate.size or math.nan) / card.tokens,
        "how_sure": way_certainty(card, candidate),
        "bytes": candidate.slots * card.shape.entry_bytes if card.own_tokens else None,
        **asdict(candidate),
    }


def _plain(value: Any) -> Any:
    """Return a value without NaN, which JSON has not."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and math.isnan(value) else value
