"""What sets a way and its size in engines, frameworks and services."""

from collections.abc import Mapping

from fdkvc.core.words import percent
from fdkvc.policies.ways import CLEARED, CLEARING_EDIT, MESSAGES, USER_FIRST
from fdkvc.verdict.card import Way
from fdkvc.verdict.today import STOPS, TodayLoss

TRIM = (
    "# all from a user's message to the next leave together, so it may keep less than that: where\n"
    "# the newest exchange is larger, nothing but the system prompt may stay\n"
    "trim_messages(messages, max_tokens={}, token_counter=model, "
    'start_on="human", include_system=True)'
)

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "shift": {"llama.cpp": "llama-server --context-shift --ctx-size {}"},
    STOPS: {"llama.cpp": "llama-server --ctx-size {}"},
    MESSAGES: {
        "Ollama": "OLLAMA_CONTEXT_LENGTH={} ollama serve",
        "LangChain": TRIM,
    },
    USER_FIRST: {"LangChain": TRIM},
    CLEARED: {
        "Anthropic": 'betas=["context-management-2025-06-27"], context_management={{"edits": ['
        + CLEARING_EDIT
        + "]}}",
        "LangChain": "ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger={})], "
        'token_count_method="model")',
    },
}
"""How engines and services set what they do by themselves, as they document it."""

OURS = (
    "from fdkvc import PolicyCache, read_policy\n"
    'cache = PolicyCache(read_policy("{}"), {}, model, tokenizer=tokenizer)\n'
    "model.generate(**turn, cache=cache)"
)
"""How this project's own cache is set, in *transformers*."""


def settings_of(
    candidate: Way, tokens: float, unit: str, *, estimated: bool
) -> dict[str, str]:
    """Return what sets a way and its size, by engine or library.

    Each begins with a comment: engines count by tokenizers of their own, and the size is in tokens
    of `unit`, of conversations with so many on average. It is `estimated` where that is no
    tokenizer of the model to set.
    """
    size = candidate.tried
    share = f"{percent(size / tokens)} of the average conversation"
    comment = _comment(size, share, unit, estimated)
    if candidate.uncleared:
        comment += "\n# where clearing is not enough, also drop the oldest messages"
    lines = SETTINGS.get(candidate.policy)
    if lines is None:
        name = candidate.policy.replace(", ", ",")  # so that no line ends within it
        return {"transformers": f"{comment}\n{OURS.format(name, size)}"}
    return {engine: f"{comment}\n{line.format(size)}" for engine, line in lines.items()}


def settings_of_limit(loss: TodayLoss, unit: str, *, estimated: bool) -> dict[str, str]:
    """Return what sets today's engine to the length of the longest conversation, if it has that."""
    comment = _comment(loss.longest, "the longest conversation", unit, estimated)
    for engine, line in SETTINGS.get(loss.today.policy, {}).items():
        if engine in loss.today.preset.label:
            name = f"{engine}, for the longest conversation"
            return {name: f"{comment}\n{line.format(loss.longest)}"}
    return {}


def _comment(size: int, share: str, unit: str, estimated: bool) -> str:
    unsure = "; your model may count more" if estimated else ""
    return f"# {size:,} tokens of {unit}, {share}{unsure}"
