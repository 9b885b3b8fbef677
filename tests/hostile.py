"""Text that has an effect if it is interpreted as markup, and files full of it."""

import json

HOST = "elsewhere.example"
HOSTILE = (
    f"![x](http://{HOST}/p.png) [Your session expired](https://{HOST}/) www.{HOST} me@{HOST} "
    f"<img src=http://{HOST}/h.png onerror=alert(1)> :smile: :material/home: :red[r] $x^2$ **b**"
)
"""In Markdown, in HTML and in Streamlit's own marks; ends in plain letters."""


def hostile_dialogs() -> bytes:
    """Return a conversation with this text in every text field."""
    said = [
        {"role": "user", "topic": HOSTILE, "content": f"{HOSTILE} Rome 7"},
        {
            "role": "assistant",
            "content": f"=1+1 {HOSTILE}",
            "tool_calls": [
                {"function": {"name": HOSTILE, "arguments": json.dumps({HOSTILE: "Rome"})}}
            ],
        },
        {"role": HOSTILE, "topic": "B", "content": HOSTILE},
    ]
    return json.dumps([{"id": HOSTILE, "messages": said}]).encode()


def refused_dialogs() -> bytes:
    """Return a file whose error message names one of its dialogs."""
    return json.dumps(
        [{"dialogue_id": HOSTILE, "turns": [{"speaker": "USER", "utterance": 1}]}]
    ).encode()
