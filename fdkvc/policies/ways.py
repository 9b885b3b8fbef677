"""Ways to fit a conversation: what people call each policy, on every page and in every file."""

from fdkvc.core.parameters import changed
from fdkvc.policies import read_policy
from fdkvc.policies.reread import Reread
from fdkvc.policies.sinks import Sinks
from fdkvc.policies.whitelist import Whitelist

EVICT = "evict: "
MESSAGES, USER_FIRST = "reread(messages(fifo))", "reread(messages(fifo, begins=user))"
CLEARED = "reread(clear-results)"
"""The policies of what engines and frameworks do with messages."""

CLEARING_EDIT = (
    '{{"type": "clear_tool_uses_20250919", "trigger": {{"type": "input_tokens", "value": {}}}, '
    '"keep": {{"type": "tool_uses", "value": 3}}}}'
)
"""The edit of Anthropic's context editing that clears as `CLEARED` does, for `str.format`."""

KEPT = ", keys kept"
"""Added to a way after which engines usually read the rest again, if it keeps keys and values."""

WORDS = {
    "fifo": f"{EVICT}age (FIFO)",
    "h2o": f"{EVICT}attention (H2O)",
    "regions": f"{EVICT}region (MemDecay)",
    "sink": "sinks and window (StreamingLLM)",
    "shift": "context shift (llama.cpp)",
    USER_FIRST: "drop oldest messages up to a user's",
}
"""What people call a way, where the title of its policy does not say it."""

WHOLE_MESSAGES = ("messages", "clear-results")
"""Keys of policies after which what stays is usually read again."""


def way_words(name: str) -> str:
    """Return what people call a way.

    Examples
    --------
    >>> way_words("reread(messages(fifo))"), way_words("sinks(weighted-recency)")
    ('drop oldest messages', 'evict: weighted recency + sinks')
    >>> way_words("messages(fifo)")
    'drop oldest messages, keys kept'
    >>> way_words("reread(sink)"), way_words("whitelist(fifo, first=0, speaker=prompt)")
    ('sinks and window (StreamingLLM), read again', 'evict: age (FIFO) + prompt')
    """
    # A pinned prompt may be added to any way, so it comes off first.
    without_prompt = unpinned(name)
    if without_prompt != name:
        return f"{way_words(without_prompt)} + prompt"
    if name in WORDS:
        return WORDS[name]
    policy = read_policy(name)
    if isinstance(policy, Sinks) and not changed(policy):
        return f"{way_words(policy.policy.name)} + sinks"
    if isinstance(policy, Reread) and not changed(policy):
        words = way_words(policy.policy.name)
        return words.removesuffix(KEPT) if words.endswith(KEPT) else f"{words}, read again"
    title = policy.title
    if title[1:2].islower():  # not of an abbreviation, such as TOVA
        title = f"{title[0].lower()}{title[1:]}"
    if policy.key in WHOLE_MESSAGES:
        return f"{title}{KEPT}"
    return title if policy.key in ("reread", "shift") else f"{EVICT}{title}"


def unpinned(name: str) -> str:
    """Return the name of a policy without its pinned system prompt."""
    policy = read_policy(name)
    if isinstance(policy, Whitelist) and policy.speaker == "prompt":
        return policy.policy.name
    return name
