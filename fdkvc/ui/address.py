"""The page's address, written as the view changes and read again after Back; scrolling to a part.

Streamlit's `st.query_params` adds an entry to the browser's history at every change. Here a step of
the stage replaces the entry, and only a new choice adds one.
"""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import streamlit as st

_SESSION = "address/session"
_ENTRY = "address/entry"
_RECEIVED = "address/received"
_BROWSER = "address/browser"
_COOKIE = "fdkvc"  # as address.js writes it
_show, _scroll = (
    st.components.v2.component(
        name, js=Path(__file__).with_name(f"{name}.js").read_text("utf-8")
    )
    for name in ("address", "scroll")
)


def follow(page: str) -> Mapping[str, str] | None:
    """Return the link that Back or Forward opened; None if neither was used.

    For use before the page is drawn. Also returns the browser's link after the server has lost its
    session.
    """
    # A state, not a trigger: a trigger may be lost while the page runs.
    address = _show(
        key="address", data={"page": page, **_status()}, on_visited_change=lambda: None
    )
    visit = address.visited
    if not visit or visit["session"] != st.session_state[_SESSION]:
        return None
    if visit["visit"] == st.session_state.get(_RECEIVED, 0):
        return None
    st.session_state[_RECEIVED] = int(visit["visit"])
    return {str(name): str(text) for name, text in visit["link"].items()}


def write(link: Mapping[str, str], chosen: bool) -> None:
    """Write a view into the page's address; `chosen` keeps the previous one in the history."""
    # A count, not a flag: of several answers that come at once, the browser draws only the last.
    entry = st.session_state.get(_ENTRY, 0) + chosen
    st.session_state[_ENTRY] = entry
    _show(key="address-link", data={"link": dict(link), "entry": entry, **_status()})


def browser() -> str:
    """Return a name of this browser, the same after a reload and in its other tabs.

    It is kept in a cookie; without cookies it is the session's name.
    """
    name: str = st.session_state.setdefault(
        _BROWSER, st.context.cookies.get(_COOKIE) or _status()["session"]
    )
    return name


def _status() -> dict[str, object]:
    """Return this session's name, and the number of the last visit that the server received."""
    session = st.session_state.setdefault(_SESSION, uuid4().hex)
    return {"session": session, "received": st.session_state.get(_RECEIVED, 0)}


def scroll_to(part: str, block: str = "start", count: int | None = None) -> None:
    """Bring the first element of a selector into view, again for three seconds.

    With a `count`, only if it is higher than at the last call on this page.
    """
    key = f"address-scroll-{block}"  # a page may do both
    request = uuid4().hex if count is None else ""  # the browser draws only what has changed
    _scroll(key=key, data={"part": part, "block": block, "count": count, "asked": request})
