"""Words that would do something if they were taken for more than text, and files full of them."""

from __future__ import annotations

import json

HOST = "elsewhere.example"
HOSTILE = (
    f"![x](http://{HOST}/p.png) [Your session expired](https://{HOST}/) www.{HOST} me@{HOST} "
    f"<img src=http://{HOST}/h.png onerror=alert(1)> :smile: :material/home: :red[r] $x^2$ **b**"
)
"""In Markdown, in HTML and in Streamlit's own marks; ends in plain letters."""


def hostile_dialogs() -> bytes:
    """Return a conversation that says them wherever text may stand."""
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
    """Return a file that is refused in a sentence which names a dialog of it."""
    return json.dumps([{"dialogue_id": HOSTILE, "turns": [{"speaker": "USER"}]}]).encode()
