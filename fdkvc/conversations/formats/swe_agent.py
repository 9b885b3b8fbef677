"""Trajectories of SWE-agent: ``history``, what the agent read, beside the ``trajectory``.

Its calls are ``tool_calls`` or, where the model writes commands, actions in its words, which have
no arguments to check: they are counted. What an action returned is a result even where its role is
that of the user. History of another agent is counted.

Yang et al. 2024, *SWE-agent: Agent-Computer Interfaces Enable Automated Software Engineering*
(``SWE-agent/SWE-agent``, ``sweagent/types.py``).
"""

from dataclasses import replace

from fdkvc.conversations.formats.base import Messages, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.core.json_input import (
    JsonObject,
    listed_objects,
    objects_of,
    of_kind,
    optional,
    require,
)
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list

ACTION = "arguments of an action in the assistant's words"
OTHER_AGENT = "message of another agent"

_WORDS = name_list("action observation query response thought")
STEP_FIELDS = (*_WORDS, "extra_info", "messages", "state")
"""Fields of a trajectory's steps, which the history repeats."""

BOOKKEEPING = name_list("agent cache_control is_demo message_type tags tool_call_ids")


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    for step, _ in listed_objects(value, "trajectory", "step", place):
        unread.fields(step, STEP_FIELDS)
    agent = None
    acted = False
    for message, location in messages_of(value, "history", place, "message"):
        name = optional(message, "agent", str, location)
        agent = name if agent is None else agent
        if name != agent:
            unread.add(OTHER_AGENT)
            continue
        role = require(message, "role", str, location)
        content = message.get("content")
        texts = {
            field: optional(message, field, str, location) for field in ("thought", "action")
        }
        if content is None:
            content = "\n".join(filter(None, texts.values()))
        # The type of the message does not tell: that of the first is an observation, too.
        observed = acted and role == "user"
        acted = bool(texts["action"])
        in_words = acted and not message.get("tool_calls")
        unread.add(ACTION, in_words)
        chat_message = restated(
            message, *BOOKKEEPING, role="tool" if observed else role, content=content
        )
        for field, text in texts.items():
            if text.strip() in str(content) or (field == "action" and not in_words):
                chat_message.pop(field, None)  # it repeats the words or the call
        yield chat_message, location


def recognizes(value: JsonObject) -> bool:
    """Whether there is a trajectory, or the history has messages of an agent."""
    first_messages = objects_of(of_kind(value["history"], list)[:1])
    return "trajectory" in value or any("role" in message for message in first_messages)


FORMAT = replace(
    chat_format(
        "swe-agent",
        "SWE-agent trajectories",
        "history",
        _messages,
        reads=("trajectory", "environment"),
        recognizes=recognizes,
    ),
    endings=("json", "jsonl", "traj"),
)
