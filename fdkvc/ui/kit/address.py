"""The page's address: written as its view changes, and read again when a person goes back.

Streamlit's own `st.query_params` makes an entry of the browser's history of whatever is written. A
turn is not worth one: here the address of the entry is replaced, unless something was chosen anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

import streamlit as st

# What is known here lives as long as the window, whichever page it shows and however often the
# server forgets its session. Streamlit, which listens too, goes to another page by itself, but
# draws the one that is shown anew and says nothing that tells it from a click that comes late.
# Until the server has heard where the browser went, what it says is of where it was.
JS = """
let session, lost, entry, path, tell, asked = 0;

const embeds = ([name]) => name === 'embed' || name === 'embed_options';
const parts = () => [...new URLSearchParams(location.search)];

function visit() {
  const link = Object.fromEntries(parts().filter((part) => !embeds(part)));
  asked += 1;
  tell('visited', { link, asked });
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

export default function ({ data, setTriggerValue }) {
  path = location.pathname;
  if (data.session !== session) {
    lost = session !== undefined;
    session = data.session;
    entry = undefined;
    asked = data.heard;
  }
  if (!data.link) {
    tell = setTriggerValue;
    if (lost) visit();
    lost = false;
  } else if (!lost && data.heard === asked) {
    write(data);
  }
}
"""

_SESSION = "address/session"
_ENTRY = "address/entry"
_HEARD = "address/heard"
_show = st.components.v2.component("address", js=JS)


def follow(page: str, visit: Callable[[Mapping[str, str]], None]) -> None:
    """Listen for the browser's Back and Forward while it stays on a page.

    Parameters
    ----------
    page : str
        The one that is shown.
    visit : function
        Called, before the page runs again, with the parameters of the address that the browser
        went to; also with those that it has when the server does not know its session any more.
    """
    key = "address"

    def visited() -> None:
        said = st.session_state[key].visited
        st.session_state[_HEARD] = int(said["asked"])
        visit({str(name): str(text) for name, text in said["link"].items()})

    _show(key=key, data={"page": page, **_standing()}, on_visited_change=visited)


def write(link: Mapping[str, str], chosen: bool) -> None:
    """Put a view into the page's address.

    Parameters
    ----------
    link : mapping of str to str
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
