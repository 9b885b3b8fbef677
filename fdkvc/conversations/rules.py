"""What the user said as a rule, and whether it stands word for word in what stayed.

A rule is a sentence of the user with a word such as *always*, *never*, *must* or *remember*. It
stands if what the model had after a compaction has all of its words in order, whatever the spaces
and the case. A summary may also say it in other words: that is for a reader to judge.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fdkvc.conversations.session_text import span_kind
from fdkvc.conversations.sessions import Session

MAX_RULES = 200
"""Most rules of a compaction, the newest."""

_RULE = re.compile(
    r"(?i)\b(?:always|never|must(?:n't)?|do not|don['’]t|cannot|remember|keep in mind|make sure|"
    r"(?:has|have|needs?) to|should(?:n't)?|nobody|not (?:to|in|on)|avoid|prefer|only|"
    r"from now on|important|instead of|without asking|no longer)\b"
)
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_ASIDE = re.compile(r"```.*?```|<[\w-]+>.*?</[\w-]+>", re.DOTALL)


class Rule(NamedTuple):
    """A sentence of the user that is a rule."""

    text: str
    message: int
    stands: bool
    """Whether it stands word for word in what stayed."""


def rules_in(text: str) -> Iterator[str]:
    """Yield the rules in a message of the user, without code and what an agent put beside it.

    Examples
    --------
    >>> [*rules_in("Mend src/zone.py. Never push to main! Is it done?")]
    ['Never push to main!']
    """
    for sentence in _SENTENCE.findall(_ASIDE.sub(" ", text)):
        words = sentence.split()
        is_question = sentence.endswith("?")
        if 3 <= len(words) <= 60 and _RULE.search(sentence) and not is_question:
            yield " ".join(words)


def rules_at(session: Session, number: int) -> tuple[Rule, ...]:
    """Return the rules that the user had said before a compaction, in order, each once."""
    compaction = session.compactions[number]
    messages = session.messages
    places: dict[str, int] = {}
    for index in compaction.context:
        turn = messages[index].turn
        if span_kind(messages[index]) == "user" and index not in session.summaries:
            places |= dict.fromkeys(rules_in(turn.text), index)
    newest = [*places.items()][-MAX_RULES:]
    staying = {*compaction.stayed}
    text_that_stayed = ""
    if not staying.issuperset(index for _, index in newest):
        texts = (" ".join(messages[index].turn.text.split()) for index in compaction.stayed)
        text_that_stayed = " ".join(texts).lower()
    rules = []
    for text, index in newest:
        stands = index in staying or text.lower() in text_that_stayed
        rules.append(Rule(text, index, stands))
    return tuple(rules)
