"""The slider of a transport: what it shows follows the thumb while a person drags it.

Streamlit's own tells its value only when it is let go, and lays the whole page out anew whenever it
is drawn, which was a sixth of the time of a step.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

HTML = """
<div class="scrubber"><input type="range" min="0" aria-label="Turn"><output></output></div>
"""

CSS = """
.scrubber { display: flex; align-items: center; gap: 0.6rem; height: 2.5rem; }
.scrubber input { flex: 1; min-width: 0; accent-color: var(--st-primary-color); }
.scrubber output { min-width: 3.5em; white-space: nowrap; color: var(--st-text-color);
  font-size: 0.875rem; font-variant-numeric: tabular-nums; }
"""

# What the server shows counts only once it has heard the last that this slider has asked for: a
# thumb that is being dragged must not go back to where it was.
JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  const range = parentElement.querySelector('input');
  const tell = () => {
    parentElement.querySelector('output').textContent = `${range.value} of ${data.last}`;
  };
  range.max = data.last;
  range.disabled = data.disabled;
  range.asked ??= data.heard;
  if (range.asked === data.heard) range.value = data.turn;
  range.oninput = () => {
    range.asked += 1;
    tell();
    setTriggerValue('moved', { to: range.valueAsNumber, asked: range.asked });
  };
  tell();
}
"""

_show = st.components.v2.component("scrubber", html=HTML, css=CSS, js=JS, isolate_styles=False)


def scrubber(key: str, turn: int, last: int, disabled: bool, go: Callable[[int], None]) -> None:
    """Show where the turn stands, and let a person move it.

    Parameters
    ----------
    key : str
    turn, last : int
        Where it stands, and how far it goes from 0.
    disabled : bool
    go : function
        Called with the turn that it was moved to.
    """
    heard = f"{key}/heard"

    def moved() -> None:
        said = st.session_state[key].moved
        st.session_state[heard] = int(said["asked"])
        go(int(said["to"]))

    asked = st.session_state.get(heard, 0)
    data = {"turn": turn, "last": last, "disabled": disabled, "heard": asked}
    _show(key=key, data=data, on_moved_change=moved, width=320)
