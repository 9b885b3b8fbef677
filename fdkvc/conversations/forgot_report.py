"""What a session forgot, as sentences, tables and JSON, for the command and the page."""

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from math import floor, log10

from fdkvc.conversations.forgot import LISTED, NO_SUMMARY, Fitted, Forgot
from fdkvc.conversations.forgot_history import SUMMARY, Need
from fdkvc.conversations.price import LIST_PRICES, Prices
from fdkvc.conversations.sessions import Session
from fdkvc.conversations.thing_index import file_name, is_path
from fdkvc.core.json_input import Fields
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import clipped, count, listed, percent
from fdkvc.policies.ways import CLEARED, MESSAGES
from fdkvc.runs.grid import Grid

WORST = 5
"""Most losses that are shown of a compaction."""

CLIPPED = 34
"""Most characters of a value in a table."""

HOSTED = (CLEARED, MESSAGES)
"""The ways that agents on hosted services can set; others take an engine of one's own."""

STAYED = {"summary": "The summary and what stayed", "cleared": "What was not cleared"}
"""What the model had after a compaction, by its kind."""

WHAT_STAYED = "No summary is in the file; what stayed"
"""What it had, where there was a summary that the file does not have, or none."""

WIDTH = 100
"""Columns of a line."""


def tokens_note(session: Session) -> str:
    """Say what the numbers of the tables count."""
    return (
        f"Sizes are {session.unit}, without the marks of a chat template; an agent counts tokens "
        "of its own model, with its prompt and tools. Needed: paths, ids, names and numbers in "
        "later calls, also inside commands, that stood in the text before. Repeated: later "
        "results with lines of results from before that are not held (tokens of these lines). "
        "Read again: tokens that a model reads anew, from the first change of its text on. "
        "Pays off after: the requests after which the shorter text had cost less than the whole, "
        "in a prefix cache; “no”: not in the requests that followed; empty: no request followed. "
        "Own engine only: the way evicts from an engine's own cache, which services do not offer."
    )


def heading(result: Forgot) -> str:
    """Say which compaction it is, where, and how large the text was before and after."""
    compaction = result.compaction
    session = result.session
    if compaction.kind == "imagined":
        return (
            f"{session.name}, as if compacted {compaction.place}: {result.before:,} "
            f"tokens, {result.size:,} stay ({percent(result.size / max(result.before, 1))})"
        )
    number = f"compaction {result.number + 1} of {len(session.compactions)}"
    trigger = {"auto": ", automatic", "manual": ", by hand"}.get(compaction.trigger, "")
    counted = ""
    if any(compaction.recorded):
        sizes = [f"{tokens:,}" if tokens else "?" for tokens in compaction.recorded]
        counted = f"; the agent itself counted {' → '.join(sizes)}, with its prompt and tools"
    return (
        f"{session.name}, {number} ({compaction.place}{trigger}): {result.before:,} → "
        f"{session.tokens_of(compaction.stayed):,} tokens{counted}"
    )


def sentence(result: Forgot) -> str:
    """Say what a compaction forgot, and what was done again."""
    if not result.ways:
        return (
            "What the model had after it is not in the file, so what it forgot is not known."
        )
    # If what the session did is not known, the best way stands for it.
    recorded = result.recorded
    fitted = recorded or max(result.ways, key=lambda fitted: sum(fitted.holds))
    redone = redone_sentence(fitted)
    total = len(fitted.holds)
    if not total:
        return f"No later call needed a value from the text before. {redone}"
    held = f"held {sum(fitted.holds):,} of {count(total, 'value')} that later calls needed."
    if recorded is None:
        return f"In a replay of the log, “{fitted.label}” would have {held} {redone}"
    subject = WHAT_STAYED if fitted.label == NO_SUMMARY else STAYED[result.compaction.kind]
    return " ".join(filter(None, (f"{subject} {held}", returned_sentence(result), redone)))


def how_sure(result: Forgot) -> str:
    """Say what the sentence on a compaction counts, and what not; "" if that is not known."""
    if not result.ways:
        return ""
    kind = "imagined compaction" if result.compaction.kind == "imagined" else "compaction"
    compactions = count(len(result.session.compactions), kind)
    unseen = "What came back in another form is not seen."
    if result.recorded and any(need.giver < 0 for need in result.lost()):
        unseen = (
            "What did not come back stands in a later call all the same: the agent had it in "
            "another form, from what the log does not show, or by chance. So this counts what had "
            "left the context, not what went wrong."
        )
    return (
        f"How sure: counted word for word in this one log ({compactions}, "
        f"{count(len(result.needs), 'needed value')} at this one). {unseen}"
    )


def replay_sentence(result: Forgot) -> str:
    """Say which way of hosted services would have held more; "" if none is compared."""
    recorded = result.recorded
    hosted_ways = [fitted for fitted in result.ways if fitted.policy in HOSTED]
    if recorded is None or not result.needs or not hosted_ways:
        return ""
    best = max(hosted_ways, key=lambda fitted: sum(fitted.holds))
    lead = "In a replay of the same log,"
    if sum(best.holds) <= sum(recorded.holds):
        names = listed([f"“{fitted.label}”" for fitted in hosted_ways])
        return f"{lead} {names} would not have held more."
    held = f"{sum(best.holds):,}, in {best.tokens:,} tokens"
    return f"{lead} “{best.label}” would have held {held}."


def returned_sentence(result: Forgot) -> str:
    """Say how many of the values that had left came back before they were used."""
    lost = result.lost()
    if not lost:
        return ""
    missing = [need for need in lost if need.giver < 0]
    named = sum(named_in_context(need, result.session) for need in missing)
    outcome = f", {len(missing):,} did not" if missing else ""
    if named:
        outcome += f" (for {named:,} of them, a path with the same file name was in context)"
    return (
        f"Of {count(len(lost), 'value')} that had left, {len(lost) - len(missing):,} came back "
        f"word for word before use{outcome}."
    )


def named_in_context(need: Need, session: Session) -> bool:
    """Whether the file name that ends a path was in context when a call needed the path."""
    file = file_name(need.value)
    name = rf"(?<![\w.-]){re.escape(file)}(?![\w-])"
    earlier = session.in_context(need.message) - {need.message}
    texts = (session.messages[index].turn.text for index in earlier)
    is_file = is_path(need.value) and "." in file[1:]  # the last part of a folder is any word
    return is_file and any(re.search(name, text) for text in texts)


def redone_sentence(fitted: Fitted) -> str:
    """Say which lines of results came back after a compaction."""
    redone = fitted.redone
    if not redone.lines:
        return "No later result repeats lines that had left."
    verb = "repeats" if redone.calls == 1 else "repeat"
    edited = (
        f", {redone.edited_tokens:,} of files edited since" if redone.edited_tokens else ""
    )
    return (
        f"{count(redone.calls, 'later result')} {verb} {count(redone.lines, 'line')} that had left "
        f"({count(redone.tokens, 'token')}{edited})."
    )


def failures_sentence(result: Forgot, words: bool = True) -> str:
    """Say which later calls named a path or id that does not exist; "" if none did."""
    failures = result.failures
    if not failures:
        return ""
    first, *others = failures
    value = f"“{clipped_value(first.value, CLIPPED)}”" if words else kind_of(first.value)
    similar = sum(failure.has_namesake for failure in failures)
    namesakes = ""
    if similar:
        number = f"for {similar:,} of them, " if others else ""
        namesakes = f"; {number}a path from before the compaction ends with the same name"
    place = result.session.messages[first.message].place
    return (
        f"{count(len(failures), 'call')} failed over a path or id that does not exist and that no "
        f"text before had{', the first' if others else ''}: {value} ({place}){namesakes}."
    )


def price_sentence(result: Forgot, prices: Prices) -> str:
    """Say after how many requests what the session did had paid for its price; "" if unknown."""
    rewrite = result.recorded.rewrite if result.recorded else None
    if rewrite is None or not rewrite.requests:
        return ""
    paid = rewrite.paid_after(prices)
    spent, alternative = map(dollars, rewrite.costs(prices)[-1])
    paid_words = (
        f"it had paid for itself after {paid:,}" if paid else "it had not paid for itself"
    )
    expired = rewrite.expired(prices)
    late = ""
    if expired:
        late = f" The cache had expired before {expired:,}, after {prices.minutes:g} minutes."
    return (
        f"In the {count(rewrite.requests, 'request')} that followed, this text cost {spent} with "
        f"the compaction and would have cost {alternative} without: {paid_words} "
        f"({prices.source}).{late}"
    )


def dollars(amount: float) -> str:
    """Return an amount of money with at least two digits.

    Examples
    --------
    >>> dollars(4.567), dollars(0.0171), dollars(0.0000042), dollars(0)
    ('$4.57', '$0.017', '$0.0000042', '$0.00')
    """
    if amount >= 0.1 or not amount:
        return f"${amount:,.2f}"
    digits = 1 - floor(log10(amount))
    return f"${amount:.{digits}f}"


def rules_sentence(result: Forgot, words: bool = True) -> str:
    """Say how many of the user's rules stand word for word in what stayed; "" if there are none."""
    rules = result.rules
    if not rules or result.recorded is None:
        return ""
    standing = sum(rule.stands for rule in rules)
    with_rule = "with a rule (never, must, …)"
    place = "word for word in what stayed."
    if len(rules) == 1:
        verb = "stands" if standing else "does not stand"
        quoted = f": “{clipped(rules[0].text, WIDTH)}”" if words else ""
        return f"The user's one sentence {with_rule} {verb} {place[:-1]}{quoted or '.'}"
    verb = "stands" if standing == 1 else "stand"
    return f"{standing:,} of the user's {len(rules):,} sentences {with_rule} {verb} {place}"


def rules_lines(result: Forgot) -> list[str]:
    """Return the user's rules that do not stand word for word in what stayed, the newest first."""
    lines = []
    for rule in reversed(result.rules):
        if not rule.stands:
            place = result.session.messages[rule.message].place
            lines.append(clipped(f"{place}: {rule.text}", WIDTH))
    return lines[:WORST]


def notes_of(result: Forgot, prices: Prices = LIST_PRICES, *, words: bool = True) -> list[str]:
    """Return the sentences on what is missing of a compaction, and on what is not compared."""
    calls, total = result.calls
    coverage = f"Needed values are in {calls:,} of the {count(total, 'call')} that followed"
    has_next = result.number + 1 < len(result.session.compactions)
    coverage += " until the next compaction." if has_next else "."
    edit = result.calls_to_edit
    notes = (
        result.compaction.note,
        replay_sentence(result),
        coverage if total else "",
        f"The agent made {count(edit, 'call')} before its first edit after the compaction."
        if edit
        else "",
        failures_sentence(result, words),
        price_sentence(result, prices),
        rules_sentence(result, words),
        *result.notes,
    )
    return [*filter(None, notes)]


def instruction(result: Forgot) -> str:
    """Say what to tell the agent for its next compaction, by what this one lost; "" if nothing.

    A list of this kind was replayed, the instruction was not: what a model does with it is open.
    """
    lost = result.lost()
    missing = [rule for rule in result.rules if not rule.stands]
    if result.recorded is None or not (lost or missing):
        return ""
    kinds = lost_kinds(lost).most_common()
    kept = [KIND_WORDS[name] for name, _ in kinds]
    if missing:
        kept.append("my rules")
    recorded = result.recorded.holds
    gain = ""
    list_way = result.ways[-1]
    if list_way.label == LISTED and any(list_way.holds):
        pairs = zip(list_way.holds, recorded, strict=True)
        both = f"{sum(map(any, pairs)):,} of {count(len(recorded), 'value')}"
        gain = (
            " A replay tried a list of what the user and the agent's calls had named "
            f"({list_way.tokens:,} more tokens): with it, what stayed holds {both}."
        )
    return (
        f"To change: paste after /compact “List word for word: {'; '.join(kept)}.” This was not "
        f"tried.{gain}"
    )


def ways_grid(result: Forgot, prices: Prices = LIST_PRICES) -> Grid:
    """Return the table of ways."""
    rows = []
    for fitted in result.ways:
        row = {
            "way": fitted.label,
            "tokens": f"{fitted.tokens:,}",
            "values held": f"{sum(fitted.holds):,} of {len(fitted.holds):,}",
            "repeated (tokens)": f"{fitted.redone.calls:,} ({fitted.redone.tokens:,})",
            "read again": f"{fitted.read_again:,}",
            "pays off after": paid(fitted, prices),
        }
        rows.append(row)
    return Grid([*rows[0]] if rows else [], [[*row.values()] for row in rows])


def paid(fitted: Fitted, prices: Prices) -> str:
    """Return after how many requests a way had paid, and of which ways no service has a price."""
    if fitted.policy not in ("", *HOSTED):
        return "own engine only"
    if fitted.rewrite is None or not fitted.rewrite.requests:
        return ""
    requests = fitted.rewrite.paid_after(prices)
    return count(requests, "request") if requests else "no"


def given_by(need: Need) -> str:
    """Say who gave a value."""
    if need.source_kind == SUMMARY:
        return "an earlier summary"
    if need.tool:
        return f"a result of {need.tool}"
    return re.sub("^(used|said) (in|by) ", "", GIVEN_BY[need.source_kind])


def clipped_value(value: str, width: int) -> str:
    """Cut a value to a number of characters: a path at its beginning, as others may share that.

    Examples
    --------
    >>> clipped_value("/srv/shop/port.py", 10), clipped_value("QX-771 and QX-772", 10)
    ('…p/port.py', 'QX-771 an…')
    """
    line = " ".join(value.split())
    return clipped(line[::-1], width)[::-1] if is_path(line) else clipped(line, width)


def losses_grid(result: Forgot, words: bool) -> Grid:
    """Return the worst losses: value, who gave it, how long before, and the call that needed it."""
    messages = result.session.messages
    rows = []
    for need in result.lost()[:WORST]:
        value = clipped_value(need.value, CLIPPED) if words else kind_of(need.value)
        call = clipped(f"{need.method}, {messages[need.message].place}", 26)
        giver = messages[need.giver].place if need.giver >= 0 else ""
        rows.append([value, clipped(given_by(need), 22), f"{need.age:,}", call, giver])
    return Grid(["value", "given by", "ago", "needed by", "came back"], rows, names=5)


def as_text(results: Sequence[Forgot], words: bool, prices: Prices) -> str:
    """Return what the command prints."""
    parts = []
    for result in results:
        paragraphs = [
            heading(result),
            sentence(result),
            instruction(result),
            how_sure(result),
            *notes_of(result, prices, words=words),
        ]
        lines = [textwrap.fill(text, WIDTH) for text in filter(None, paragraphs)]
        if result.ways:
            lines += ["", ways_grid(result, prices).within(WIDTH).text()]
        lost = result.lost()
        if lost:
            grid = losses_grid(result, words=words)
            some = f"{len(grid.rows)} of {count(len(lost), 'value')}"
            lines += [
                "",
                f"{some} that “{result.ways[0].label}” does not hold, the worst first:",
                grid.text(),
            ]
        rules = rules_lines(result)
        # The sentence above has a single one.
        if words and result.recorded is not None and rules and result.rules[1:]:
            lines += [
                "",
                "Rules of the user that are not word for word in what stayed:",
                *rules,
            ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, textwrap.fill(tokens_note(results[0].session), WIDTH)])


def none_words(session: Session) -> str:
    """Say that a session has no compaction, and what that tells."""
    none = "No compaction"
    outcome = "nothing was forgotten"
    if any(re.search("compact|compress", kind) for kind, _ in session.unread):
        none = "No compaction that can be read"
        outcome = "what was forgotten is not known"
    if session.resumed:
        outcome = "what an earlier one forgot, before the file begins, is not known"
    return (
        f"{none} in this session of {session.tokens_of(session.contexts[0]):,} {session.unit}: "
        f"{outcome}."
    )


def none_sentence(session: Session) -> str:
    """Say that a session has no compaction, and how to see what one would forget."""
    size = max(session.tokens_of(session.contexts[0]) // 10, 1)
    return textwrap.fill(
        f"{none_words(session)} To see what each way would forget at a size of "
        f"{count(size, 'token')}, add --at {size}.",
        WIDTH,
        break_on_hyphens=False,
    )


def as_json(
    sessions: Sequence[Session],
    results: Sequence[Forgot],
    words: bool,
    prices: Prices,
) -> str:
    """Return what `as_text` says as JSON, with all losses of each compaction."""
    content: dict[str, list[Fields]] = {"sessions": [], "compactions": []}
    for session in sessions:
        content["sessions"].append(
            {
                "session": session.name,
                "messages": len(session.messages),
                "unit": session.unit,
                "compactions": len(session.compactions),
                "notes": session.notes,
                "not_read": dict(session.unread),
            }
        )
    for result in results:
        compaction = result.compaction
        content["compactions"].append(
            {
                "session": result.session.name,
                "compaction": result.number + 1,
                "place": compaction.place,
                "kind": compaction.kind,
                "trigger": compaction.trigger,
                "recorded_before": compaction.recorded[0],
                "recorded_after": compaction.recorded[1],
                "before": result.before,
                "size": result.size,
                "calls": result.calls[1],
                "calls with needs": result.calls[0],
                "calls before an edit": result.calls_to_edit,
                "calls failed": len(result.failures),
                "calls failed with a namesake": sum(
                    row.has_namesake for row in result.failures
                ),
                "sentence": sentence(result),
                "how sure": how_sure(result),
                "to change": instruction(result),
                "notes": notes_of(result, prices, words=words),
                "ways": ways_rows(result, prices),
                "losses": losses_rows(result, words),
                "rules": rules_rows(result, words),
            }
        )
    return json.dumps(content, indent=1, ensure_ascii=False)


def ways_rows(result: Forgot, prices: Prices = LIST_PRICES) -> list[Fields]:
    """Return what each way keeps, what came back of what it does not hold, and what it cost."""
    rows = []
    for fitted in result.ways:
        rewrite = fitted.rewrite
        requests = rewrite.requests if rewrite else None
        costs = rewrite.costs(prices) if rewrite else []
        spent, alternative = costs[-1] if costs else (None, None)
        rows.append(
            {
                "way": fitted.label,
                "policy": fitted.policy,
                "tokens": fitted.tokens,
                "values": len(fitted.holds),
                "held": sum(fitted.holds),
                "calls again": fitted.redone.calls,
                "lines again": fitted.redone.lines,
                "tokens again": fitted.redone.tokens,
                "of edited files": fitted.redone.edited_tokens,
                "read again": fitted.read_again,
                "requests": requests,
                "paid after": (rewrite.paid_after(prices) if rewrite else 0) or None,
                "dollars": spent,
                "dollars without": alternative,
            }
        )
    return rows


def losses_rows(result: Forgot, words: bool = True) -> list[Fields]:
    """Return the values that the first way does not hold, the worst loss first.

    Without `words`, a value is its kind and length.
    """
    messages = result.session.messages
    rows = []
    for need in result.lost():
        row = {
            "value": need.value if words else kind_of(need.value),
            "given by": need.source_kind,
            "tool": need.tool,
            "given": messages[need.source].place,
            "messages before": need.age,
            "needed": messages[need.message].place,
            "call": need.method,
            "slot": need.slot,
            "calls": need.calls,
            "given again": messages[need.giver].place if need.giver >= 0 else "",
            "held by": ", ".join(result.holders(need)),
        }
        rows.append(row)
    return rows


def rules_rows(result: Forgot, words: bool) -> list[Fields]:
    """Return the user's rules, and whether each stands word for word in what stayed."""
    rows = []
    for rule in result.rules:
        row = {
            "rule": rule.text if words else kind_of(rule.text),
            "said": result.session.messages[rule.message].place,
            "word for word": None if result.recorded is None else rule.stands,
        }
        rows.append(row)
    return rows


def kind_of(value: str) -> str:
    """Return what a value is, without its words.

    Examples
    --------
    >>> kind_of("src/app.py"), kind_of("QX-771"), kind_of("so be it")
    ('path of 10 characters', 'id of 6 characters', 'text of 8 characters')
    """
    return f"{kind_name(value)} of {count(len(value), 'character')}"


def lost_kinds(needs: Iterable[Need]) -> Counter[str]:
    """Return how many values there are by the name of their kind, as `KIND_PLURALS` has it."""
    kinds = Counter[str]()
    for need in needs:
        kind = kind_name(need.value)
        kinds[kind if kind in KIND_PLURALS else "name"] += 1
    return kinds


def kind_name(value: str) -> str:
    """Return the key in `KINDS` of a value."""
    return next(
        kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, value.strip())
    )


KINDS = {
    "number": r"[-+]?[\d.,]+",
    "address": r"\w+://\S+|\S+@\S+\.\w+|([\w-]+\.)+(com|net|org|io|dev|local|internal|example)",
    "path": r"\S*[/\\]\S*|[\w-]+\.[a-z]\w{0,4}",
    "id": r"(?=\S*[\d_-])\S+",
    "word": r"\S+",
    "text": r"(?s).*",
}
"""Kinds of values, by the first pattern that matches the whole value."""

KIND_PLURALS = {
    "path": "paths",
    "id": "ids",
    "name": "names",
    "number": "numbers",
    "address": "addresses",
}
"""What several values are called, by the name of their kind; a word or a text is a name."""

KIND_WORDS = {
    "number": "numbers, each with what it is",
    "address": "addresses and hosts",
    "path": "full paths of the files in use, newest first",
    "id": "ids, keys, hashes, branches and names in code",
    "name": "names of code, people and places",
}
"""What to keep, by the name of a kind."""
