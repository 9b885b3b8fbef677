"""Ways to fit a conversation: what people call each policy, on every page and in every file."""

from fdkvc.policies import read_policy
from fdkvc.policies.whitelist import Whitelist

MESSAGES = "reread(messages(fifo))"
USER_FIRST = "reread(messages(fifo, begins=user))"
CLEARED = "reread(clear-results)"
"""The policies of what engines and frameworks do with messages."""

CLEARING_EDIT = (
    '{{"type": "clear_tool_uses_20250919", "trigger": {{"type": "input_tokens", "value": {}}}, '
    '"keep": {{"type": "tool_uses", "value": 3}}}}'
)
"""The edit of Anthropic's context editing that clears as `CLEARED` does, for `str.format`."""


def way_words(name: str) -> str:
    """Return what people call a way: the title of its policy.

    Examples
    --------
    >>> way_words("reread(messages(fifo))"), way_words("sinks(weighted-recency)")
    ('Drop oldest messages', 'Weighted recency + sinks')
    >>> way_words("messages(fifo)")
    'Drop oldest messages, keys kept'
    >>> way_words("reread(sink)"), way_words("whitelist(fifo, first=0, speaker=prompt)")
    ('Sink+Window, read again', 'FIFO + prompt')
    """
    return read_policy(name).title


def unpinned(name: str) -> str:
    """Return the name of a policy without its pinned system prompt."""
    policy = read_policy(name)
    if isinstance(policy, Whitelist) and policy.speaker == "prompt":
        return policy.policy.name
    return name
