"""Scrolling to a part of the page while the page is still being drawn."""

import streamlit as st

SCRIPT = """
export default function ({data: {part, block, count}}) {
  const before = document.body.dataset.count ?? count
  if (count !== null) document.body.dataset.count = count
  if (count !== null && count <= before) return
  const again = [100, 400, 800, 1600, 3000].map((ms) =>
    setTimeout(() => document.querySelector(part)?.scrollIntoView({block}), ms))
  for (const by of ["wheel", "touchstart", "pointerdown", "keydown"])  // a person goes elsewhere
    addEventListener(by, () => again.forEach((timer) => clearTimeout(timer)), {once: true})
}
"""
_scroll = st.components.v2.component("scroll", js=SCRIPT)


def scroll_to(part: str, block: str = "start", count: int | None = None) -> None:
    """Bring the first element of a selector into view, again for three seconds.

    With a `count`, only if it is higher than at the last call on this page.
    """
    key = f"address-scroll-{block}"  # a page may do both
    _scroll(key=key, data={"part": part, "block": block, "count": count})
