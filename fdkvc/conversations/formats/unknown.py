"""What a file of no known format seems to be."""

from collections.abc import Mapping

from fdkvc.core.json_input import JsonObject
from fdkvc.core.transcripts import clean_name
from fdkvc.core.words import listed

_TABLE = """
object data first_id: a page of OpenAI's API: give its items as a list, the oldest first
messagesTree: a chat of LibreChat as a tree, which is read if it is exported without 'Recursive'
schemaType modelId: a log of Amazon Bedrock: give its request and its answer as messages
session_id ts text: a history of prompts of Codex, whose folder 'sessions' has the dialogs
display pastedContents: a history of prompts of Claude Code, whose folder 'projects' has the dialogs
instruction output: an instruction with its answer (Alpaca)
prompt response: a single question with its answer
query response: a single question with its answer
question answer: a single question with its answer
input output: a single question with its answer
prompt: a prompt without an answer
custom_id response: a result of a batch, whose request has the dialog
custom_id params: a request of an Anthropic batch, whose 'params' have the dialog
choices: an answer of OpenAI's API without its request
resourceSpans: a trace of OpenTelemetry
gen_ai.input.messages: a span of OpenTelemetry
traceEvents: a trace of a browser
cells nbformat: a Jupyter notebook
user type ts: an export of Slack
guild channel: an export of Discord
responderUsername requests: VS Code's export of Copilot
id version cwd: a session of pi in which nobody says anything
run_type inputs: a run of LangSmith
chat title: a chat of Open WebUI
openapi: a description of an API
ts type text: what Cline shows: its api_conversation_history.json has the dialog
text: a plain text, of which a line is read as a turn if it begins as in 'User: hello'
"""
SEEMS: Mapping[str, str] = dict(
    line.split(": ", maxsplit=1) for line in _TABLE.strip().splitlines()
)
"""What an object seems to be that has all of some fields; the first counts."""


def seems_to_be(place: str, value: JsonObject) -> str:
    """Say which fields an object has, and what it seems to be.

    Examples
    --------
    >>> print(seems_to_be("dialog 0", {"prompt": "a", "response": "b"}))
    dialog 0: it has 'prompt' and 'response', so it seems to be a single question with its answer
    """
    names = [repr(clean_name(name)[:30]) for name in value]
    if len(names) > 3:
        names = [*names[:3], "more"]
    kind = next(
        (words for fields, words in SEEMS.items() if value.keys() >= {*fields.split()}), ""
    )
    kind = f", so it seems to be {kind}" if kind else ""
    return f"{place}: it has {listed(names) if names else 'no fields'}{kind}"
