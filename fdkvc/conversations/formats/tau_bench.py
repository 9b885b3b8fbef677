"""Results of τ-bench and τ²-bench.

τ-bench: a list of trials, each with its chat messages in ``traj``. Trials of a task form a cluster.

τ²-bench: ``simulations``, or the file of one of them. A simulation has ``messages`` or, of speech,
``ticks``, whose parts are joined to messages. Its policy, or that of the environment, is the
agent's system prompt. The calls that the simulated user makes and their results are left out,
because the agent never reads them.

Yao et al. 2024, *τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains*
(``sierra-research/tau-bench``); Barres et al. 2025, *τ²-Bench: Evaluating Conversational Agents in
a Dual-Control Environment* (``sierra-research/tau2-bench``, ``src/tau2/data_model``).
"""

from collections.abc import Iterable
from dataclasses import replace

from fdkvc.conversations.formats.base import Dialogs, Messages, Placed, read_each, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of, run_name
from fdkvc.core.json_input import Fields, JsonObject, objects, optional, require
from fdkvc.core.unread import Unread

OF_USER = "message between the simulated user and its own tools"
REPEATED = ("audio_script_gold", "raw_data")
"""Fields of τ²-bench's messages that repeat the content, or have it instead."""

SPEECH = "message of speech without a transcript"


def _about(value: JsonObject, place: str) -> tuple[str, str]:
    return run_name(value, "task_id", "task", "trial")


def _read_results(value: JsonObject, number: int, calls: bool = False) -> Dialogs:
    simulations = require(value, "simulations", list, "the file")
    info = optional(value, "info", dict, "info")
    environment = optional(info, "environment_info", dict, "info")
    policy = optional(environment, "policy", str, "info")
    file_unread = Unread()
    for owner, read in (
        (value, "simulations"),
        (info, "environment_info"),
        (environment, "policy"),
    ):
        file_unread.fields(owner, {read, "info"})
    with_policy = []
    for row in simulations:
        if isinstance(row, dict):
            row = {**row, "policy": row.get("policy") or policy}
        with_policy.append(row)
    return read_each(SIMULATION.read, with_policy, "simulation", number, calls, file_unread)


def _simulated(value: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield the messages of a simulation, after its policy."""
    if value.get("messages") is None:
        listed = _from_ticks(value, place)
    else:
        listed = messages_of(value, "messages", place, "message")
    messages = [*_messages(listed, unread)]
    policy = optional(value, "policy", str, place)
    if policy and messages and messages[0][0]["role"] != "system":
        yield {"role": "system", "content": policy}, f"{place}, policy"
    yield from messages


def _messages(listed: Iterable[Placed], unread: Unread) -> Messages:
    """Yield the messages that the agent reads, as chat messages."""
    for message, location in listed:
        role = require(message, "role", str, location)
        parts = message.get("tool_messages")
        if parts is not None:  # the results of parallel calls
            unread.fields(message, {"tool_messages"})
            yield from _messages(
                messages_of(message, "tool_messages", location, "message"), unread
            )
            continue
        called = optional(message, "tool_calls", list, location)
        if message.get("requestor") == "user" or (role == "user" and called):
            unread.add(OF_USER)
            continue
        content = message.get("content")
        if message.get("is_audio") and content is not None:  # base64
            content = optional(message, "audio_script_gold", str, location)
            unread.add(SPEECH, not content)
        yield restated(message, *REPEATED, content=content, tool_calls=called), location


def _from_ticks(value: JsonObject, place: str) -> Messages:
    """Yield the messages of speech: what one side says without a pause of its turn is joined."""
    joined: Fields = {}
    location = place
    for tick, location in messages_of(value, "ticks", place, "tick"):
        for side, role in (("agent", "assistant"), ("user", "user")):
            chunk = optional(tick, f"{side}_chunk", dict, location)
            script = "audio_script_gold" if chunk.get("is_audio") else "content"
            if chunk.get("contains_speech", True) and (
                text := optional(chunk, script, str, location)
            ):
                ids = {*map(str, optional(chunk, "utterance_ids", list, location))}
                if joined.get("role") != role:
                    yield from _joined(joined, location)
                    joined = {"role": role, "parts": [text], "ids": ids}
                else:
                    # Within an utterance a word may be cut; another utterance begins with a new
                    # one.
                    new = bool(ids and joined["ids"] and ids.isdisjoint(joined["ids"]))
                    joined["parts"].append(f" {text}" if new else text)
                    joined["ids"] = ids
            called = optional(tick, f"{side}_tool_calls", list, location)
            results = optional(tick, f"{side}_tool_results", list, location)
            if called or results:
                yield from _joined(joined, location)
                joined = {}
            if called:
                yield {"role": role, "content": None, "tool_calls": called}, location
            yield from objects(results, "result", location)
    yield from _joined(joined, location)


def _joined(message: JsonObject, place: str) -> Messages:
    if message:
        yield {"role": message["role"], "content": "".join(message["parts"])}, place


TRIAL = chat_format("tau-bench", "τ-bench results", "traj", name_of=_about)

SIMULATION = chat_format(
    "tau2-simulation",
    "τ²-bench results",
    "messages",
    _simulated,
    ("ticks", "policy", "simulations"),
    recognizes=lambda value: "termination_reason" in value or "ticks" in value,
    name_of=_about,
    noun="simulation",
)

RESULTS = replace(
    SIMULATION, key="tau2-bench", field="simulations", read=_read_results, recognizes=None
)
