"""The page's address: written as its view changes, and read again when a person goes back.

Streamlit's own `st.query_params` makes an entry of the browser's history of whatever is written. A
turn is not worth one: here the address of the entry is replaced, unless something was chosen anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import streamlit as st

# What is known here lives as long as the window, whichever page it shows and however often the
# server forgets its session. Streamlit, which listens too, goes to another page by itself, but
# draws the one that is shown anew and says nothing that tells it from a click that comes late.
# Until the server has heard where the browser went, what it says is of where it was.
JS = """
let session, lost, entry, path, tell, asked = 0, heard = 0;

const embeds = ([name]) => name === 'embed' || name === 'embed_options';
const parts = () => [...new URLSearchParams(location.search)];

function visit() {
  const link = Object.fromEntries(parts().filter((part) => !embeds(part)));
  asked += 1;
  insist({ link, asked, session }, 2000);
}

// A server that is busy may miss it; it takes each once.
function insist(said, wait) {
  if (said.asked !== asked || said.session !== session || heard === asked) return;
  tell('visited', said);
  setTimeout(insist, wait, said, 2 * wait);
}

addEventListener('popstate', (event) => {
  if (location.pathname !== path) return;
  event.stopImmediatePropagation();
  visit();
}, true);

function write(data) {
  const link = new URLSearchParams([...Object.entries(data.link), ...parts().filter(embeds)]);
  const chosen = data.entry > entry;
  entry = data.entry;
  if (link.toString() === location.search.slice(1)) return;
  history[chosen ? 'pushState' : 'replaceState']({}, '', `?${link}`);
}

export default function ({ data, setStateValue }) {
  path = location.pathname;
  if (data.session !== session) {
    lost = session !== undefined;
    session = data.session;
    entry = undefined;
    asked = heard = data.heard;
  }
  heard = Math.max(heard, data.heard);
  if (!data.link) {
    tell = setStateValue;
    if (lost) visit();
    lost = false;
  } else if (!lost && heard === asked) {
    write(data);
  }
}
"""

_SESSION = "address/session"
_ENTRY = "address/entry"
_HEARD = "address/heard"
_show = st.components.v2.component("address", js=JS)


def follow(page: str) -> Mapping[str, str] | None:
    """Listen for the browser's Back and Forward while it stays on a page; before it is drawn.

    Parameters
    ----------
    page : str
        The one that is shown.

    Returns
    -------
    mapping of str to str or None
        The parameters of the address that the browser went to, or that it has where the server
        does not know its session any more; None if it went nowhere since the last run.
    """
    # A state and no trigger: of those that come while the page runs, one may be lost.
    shown = _show(key="address", data={"page": page, **_standing()}, on_visited_change=lambda: None)
    said = shown.visited
    if not said or said["session"] != st.session_state[_SESSION]:
        return None
    if said["asked"] == st.session_state.get(_HEARD, 0):
        return None
    st.session_state[_HEARD] = int(said["asked"])
    return {str(name): str(text) for name, text in said["link"].items()}


def write(link: Mapping[str, str], chosen: bool) -> None:
    """Put a view into the page's address.

    Parameters
    ----------
    chosen : bool
        Whether the address before is to be kept in the browser's history.
    """
    # A count, as the browser draws only the last of several answers that come at once.
    entry = st.session_state.get(_ENTRY, 0) + chosen
    st.session_state[_ENTRY] = entry
    _show(key="address-link", data={"link": dict(link), "entry": entry, **_standing()})


def _standing() -> dict[str, object]:
    """Return which session this is, and the last of the browser's visits that it has heard of."""
    session = st.session_state.setdefault(_SESSION, uuid4().hex)
    return {"session": session, "heard": st.session_state.get(_HEARD, 0)}
