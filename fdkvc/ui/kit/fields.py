"""The values of a page's view: each in a widget, in the permalink, and checked in one place.

A field knows its name in the link, its default and what is allowed. The session holds its value
under ``page/name``; a link is read once when it arrives and written whenever a value changes, with
every value in it, so that it means the same when a default changes. The browser's Back and Forward
arrive as links, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fdkvc.parameters import Parameter, check_parameter
from fdkvc.ui.kit import address
from fdkvc.ui.kit.markdown import Markdown, plain

_PENDING = "pending"
_SHOWN = "shown"
_ARRIVED = "arrived"
_CHOSEN = "chosen"


@dataclass(frozen=True)
class Field:
    """One value of a page's view.

    Attributes
    ----------
    page, name : str
        Where it belongs, and its name in the permalink.
    default : int, float, str or None
        Also says its type; None means an optional whole number.
    parameter : Parameter
        Its words and what is allowed.
    chosen : bool
        Whether the browser's Back undoes a change of it; it passes over where one merely looks.
    """

    page: str
    name: str
    default: Any
    parameter: Parameter
    chosen: bool = True

    @property
    def key(self) -> str:
        """Where the session holds the value."""
        return f"{self.page}/{self.name}"

    @property
    def kind(self) -> type:
        """The type of its values."""
        return int if self.default is None else type(self.default)

    def parse(self, text: str) -> Any:
        """Read the value from a link.

        Raises
        ------
        ValueError
            In a sentence that names the value and what is allowed.
        """
        if self.default is None and text == "":
            return None
        try:
            value = self.kind(text)
        except ValueError:
            value = text
        self.check(value)
        return value

    def written(self, value: Any) -> str:
        """Return a value as it stands in a link."""
        return "" if value is None else str(value)

    def check(self, value: Any) -> None:
        """Raise a ValueError in a clear sentence unless the value is allowed."""
        free_text = self.kind is str and not self.parameter.choices
        if value is not None and not free_text:
            check_parameter(self.parameter.label, self.parameter, value, self.kind)

    @property
    def value(self) -> Any:
        """The value that the session holds."""
        return st.session_state.get(self.key, self.default)

    def set(self, value: Any) -> None:
        """Let the session hold a value; only before its widget is drawn, or in a callback.

        A value that it holds already is not set again: the browser would move its widget back to
        it, and undo what a person has pressed or typed meanwhile.
        """
        if self.key not in st.session_state or st.session_state[self.key] != value:
            st.session_state[self.key] = value


def set_and_rerun(values: Iterable[tuple[Field, Any]]) -> None:
    """Run the page again with these values, though their widgets are drawn already.

    A button that takes what was typed beside it calls this where it is drawn: a callback of it
    would know what was typed only as it was in the run before.
    """
    st.session_state[_PENDING] = list(values)
    st.rerun()


def take_pending() -> None:
    """Let the session hold the values that the run before has left; before anything is drawn."""
    for field, value in st.session_state.pop(_PENDING, ()):
        field.set(value)


def enter(page: str) -> None:
    """Take note of the link with which the browser came to a page, or to which it went back."""
    visited = address.follow(page)
    # While it stays on a page, Streamlit goes on to tell the address with which it came.
    if st.session_state.get(_SHOWN) != page:
        st.session_state[_SHOWN] = page
        st.session_state[_ARRIVED] = st.query_params.to_dict()
    elif visited is not None:
        st.session_state[_ARRIVED] = visited


def arriving_link() -> Mapping[str, str]:
    """Return the parameters of a link that was just followed; nothing if none was."""
    if _ARRIVED not in st.session_state:
        return {}
    st.session_state.pop(_CHOSEN, None)
    link: Mapping[str, str] = st.session_state.pop(_ARRIVED)
    return link


def adopt(fields: Sequence[Field], link: Mapping[str, str]) -> list[str]:
    """Let the session hold the values of a link; return a sentence for each that is not allowed."""
    wrong = []
    for field in fields:
        if field.name not in link:
            field.set(field.default)
            continue
        try:
            field.set(field.parse(link[field.name]))
        except ValueError as error:
            field.set(field.default)
            wrong.append(not_quite_right(field, error, field.default))
    return wrong


def not_quite_right(field: Field, error: object, instead: Any) -> str:
    """Say what is wrong with a field of a link, and what is shown instead."""
    shown = field.written(instead) or "none"
    return f"This link is not quite right: {error}. Using {shown} instead."


def adopt_link(fields: Sequence[Field], link: Mapping[str, str]) -> list[str]:
    """Let the session show what a link asks for; say what of it is not right, in sentences.

    Parameters
    ----------
    fields : sequence of Field
    link : mapping of str to str
        From `arriving_link`; empty where no link was followed, which changes nothing.
    """
    if not link:
        return []
    names = {field.name for field in fields}
    return adopt(fields, link) + [
        f"This link is not quite right: it has a part {name!r} that means nothing here."
        for name in link
        if name not in names
    ]


def write_link(fields: Sequence[Field]) -> None:
    """Put every value into the address of the page; Back returns to what was chosen before."""
    written = {field.name: field.written(field.value) for field in fields}
    chosen = {field.name: written[field.name] for field in fields if field.chosen}
    before = st.session_state.get(_CHOSEN, chosen)
    st.session_state[_CHOSEN] = chosen
    address.write(written, chosen != before)


def settle(field: Field, raw: Any) -> Any:
    """Return what a widget gave if it is allowed; else say why not and return the last good one."""
    last = f"{field.key}/last"
    try:
        field.check(raw)
        if raw is None and field.default is not None:
            raise ValueError(f"{field.parameter.label} is empty")
    except ValueError as error:
        kept = st.session_state.get(last, field.default)
        st.error(plain(f"{error}. Staying at {kept}."), icon=":material/error:")
        return kept
    st.session_state[last] = raw
    return raw


def number(field: Field) -> Any:
    """Show a number field with its range, and return its value."""
    known = field.parameter
    whole = field.kind is int
    field.set(field.value)
    raw = st.number_input(
        plain(label(known)),
        key=field.key,
        step=1 if whole else 0.01,
        format="%d" if whole else "%g",
        help=plain(f"{known.help} Allowed: {known.allowed(field.kind)}."),
        persist_state="session",
    )
    value = settle(field, raw)
    caption = _standing(field, value)
    if caption:
        st.caption(plain(caption))
    return value


def label(known: Parameter) -> Markdown:
    """Return what a parameter is called, with its symbol if it has one."""
    if not known.symbol:
        return plain(known.label)
    return Markdown("{} ${}$").format(known.label, Markdown(known.symbol))


def _standing(field: Field, value: Any) -> Markdown:
    """Say how a value stands to the paper's."""
    parts = []
    if value != field.default:
        parts.append(Markdown(":orange[● changed from {:g}]").format(field.default))
    if field.parameter.paper:
        low, high = field.parameter.paper
        inside = low <= value <= high
        explored = plain(f"paper explored {low:g} to {high:g}")
        parts.append(
            explored if inside else Markdown(":orange[outside what the {}]").format(explored)
        )
    return Markdown(" · ").join(parts)


def offer(field: Field, labels: Mapping[Any, str]) -> None:
    """Let the session hold one of these before they are drawn: what it holds, or the default.

    A browser knows what is chosen by its label and its place: where those have changed, the value
    is set anew, or it would go on to show, and send, what stood there before.
    """
    known, shown = f"{field.key}/labels", tuple(labels.items())
    held = field.value
    several = isinstance(held, list | tuple)
    allowed = [key for key in held if key in labels] if several else held
    if not several and held is not None and held not in labels:
        allowed = field.default
    if st.session_state.get(known) == shown:
        field.set(allowed)
    else:
        st.session_state[known] = shown
        st.session_state[field.key] = allowed


def choice(field: Field, labels: Mapping[str, str]) -> str:
    """Show a choice and return its key."""
    offer(field, labels)
    chosen = st.selectbox(
        plain(field.parameter.label),
        list(labels),
        key=field.key,
        format_func=lambda key: labels[key],
        help=plain(field.parameter.help) or None,
        persist_state="session",
    )
    return str(chosen)


def hyperparameter(field: Field) -> Any:
    """Show a control for a policy's hyperparameter, and return its value."""
    known = field.parameter
    return choice(field, {word: word for word in known.choices}) if known.choices else number(field)


def several(field: Field, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Show a choice of several, and return their keys in the order of the labels.

    Where nothing is chosen but something is by default, a sentence says so and the default is
    returned.
    """
    offer(field, labels)
    chosen = st.pills(
        plain(field.parameter.label),
        list(labels),
        key=field.key,
        selection_mode="multi",
        format_func=lambda key: plain(labels[key]),
        help=plain(field.parameter.help) or None,
        persist_state="session",
    )
    if not chosen and field.default:
        st.error(plain(f"{field.parameter.label}: choose at least one."), icon=":material/error:")
        chosen = list(field.default)
    return tuple(key for key in labels if key in chosen)


def text(field: Field, placeholder: str = "") -> str:
    """Show a line of text and return it."""
    field.set(field.value)
    return st.text_input(
        plain(field.parameter.label),
        key=field.key,
        help=plain(field.parameter.help),
        placeholder=placeholder,
        persist_state="session",
    )
