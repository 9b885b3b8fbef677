"""The values of a page's view: each in a widget and in the permalink, as its field declares it.

The session holds a value under ``page/name``; a link is read once when it arrives and written
whenever a value changes, with every value in it, so that it means the same when a default changes.
The browser's Back and Forward arrive as links, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from fdkvc.parameters import Field, Parameter
from fdkvc.policies.renamed import instead_of
from fdkvc.ui.kit import address
from fdkvc.ui.kit.markdown import Markdown, plain

_PENDING = "pending"
_SHOWN = "shown"
_ARRIVED = "arrived"
_CHOSEN = "chosen"
_FOLLOWING = "following"
_LOOKED_AT = "looked-at"
_LAST, _REFUSED, _LABELS = "last", "refused", "labels"
"""What was given last that was right, what was not, and the labels of what there was to choose."""

Meant = TypeVar("Meant")


def key_of(page: str, field: Field) -> str:
    """Return where the session holds a page's value."""
    return "/".join(part for part in (page, field.of, field.name) if part)


def held(page: str, field: Field) -> Any:
    """Return the value that the session holds."""
    value = st.session_state.get(key_of(page, field), field.default)
    whole = field.kind is int and isinstance(value, float) and value.is_integer()
    return int(value) if whole else value


def hold(page: str, field: Field, value: Any) -> None:
    """Let the session hold a value; only before its widget is drawn, or in a callback.

    A value that it holds already is not set again: the browser would move its widget back to
    it, and undo what a person has pressed or typed meanwhile.
    """
    key = key_of(page, field)
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value


def reset(page: str, fields: Iterable[Field]) -> None:
    """Let the session hold the defaults."""
    for field in fields:
        hold(page, field, field.default)


def hold_and_rerun(page: str, values: Iterable[tuple[Field, Any]]) -> None:
    """Run the page again with these values, though their widgets are drawn already.

    A button that takes what was typed beside it calls this where it is drawn: a callback of it
    would know what was typed only as it was in the run before.
    """
    st.session_state[_PENDING] = page, list(values)
    st.rerun()


def take_pending() -> None:
    """Let the session hold the values that the run before has left; before anything is drawn."""
    page, values = st.session_state.pop(_PENDING, ("", ()))
    for field, value in values:
        hold(page, field, value)


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


def adopt(page: str, fields: Sequence[Field], link: Mapping[str, str]) -> list[str]:
    """Let the session hold the values of a link; return a sentence for each that is not allowed."""
    wrong = []
    for field in fields:
        value = field.default
        try:
            if field.name in link:
                value = field.parse(link[field.name])
        except ValueError as error:
            wrong.append(not_quite_right(field, error, value))
        hold(page, field, value)
    return wrong


def not_quite_right(field: Field, error: object, instead: Any) -> str:
    """Say what is wrong with a field of a link, and what is shown instead."""
    shown = field.written(instead) or "none"
    return f"This link is not quite right: {error}. Using {shown} instead."


def keep_to(
    page: str, field: Field, link: Mapping[str, str], instead: Any, where: str = ""
) -> list[str]:
    """Take a value to one that there is here; say where a link asked for another.

    Parameters
    ----------
    field : Field
        With what there is here as its range or its choices.
    link : mapping of str to str
        From `arriving_link`; empty where no link was followed.
    instead : object
        What is shown where there is no such value.
    where : str
        Ends the sentence.
    """
    try:
        field.check(held(page, field))
    except ValueError as error:
        hold(page, field, instead)
        if field.name in link:
            return [not_quite_right(field, f"{error}{where}", instead)]
    return []


def adopt_link(page: str, fields: Sequence[Field], link: Mapping[str, str]) -> list[str]:
    """Let the session show what a link asks for; say what of it is not right, in sentences.

    Where a person comes to a page without a link, what was shown before follows.

    Parameters
    ----------
    link : mapping of str to str
        From `arriving_link`; empty where no link was followed.
    """
    if not link:
        brought = _brought_along(page)
        for field in fields:
            if field.follows and field.name in brought:
                hold(page, field, brought[field.name])
        return []
    st.session_state[_LOOKED_AT] = page
    names = {field.name for field in fields}
    return adopt(page, fields, link) + [
        "This link is not quite right: "
        + (instead_of(name) or f"it has a part {name!r} that means nothing here")
        + "."
        for name in link
        if name not in names
    ]


def follow(name: str, value: Any) -> None:
    """Let a value go along to the other pages that ask for it by this name."""
    st.session_state[_FOLLOWING] = {**st.session_state.get(_FOLLOWING, {}), name: value}


def following(page: str, name: str, own: Meant) -> Meant:
    """Return the value that a person has brought along from another page; else the page's own.

    What comes along is taken once: until the page has written its address, and not where a link
    says what to show.
    """
    brought: Mapping[str, Meant] = _brought_along(page)
    return brought.get(name, own)


def _brought_along(page: str) -> Mapping[str, Any]:
    known: Mapping[str, Any] = st.session_state.get(_FOLLOWING, {})
    return {} if st.session_state.get(_LOOKED_AT) == page else known


def write_link(page: str, fields: Sequence[Field]) -> None:
    """Put every value into the address of the page; Back returns to what was chosen before."""
    link_writer(page, fields, ())()


def link_writer(page: str, fields: Sequence[Field], moving: Sequence[Field]) -> Callable[[], None]:
    """Return what puts every value into the address: at its first call, and what moves at others.

    It is for a fragment. The browser may ask for its run before it has heard what the page's own
    run has set, and then brings along what stood there before: that must not be written.

    Parameters
    ----------
    moving : sequence of Field
        What the fragment changes.
    """
    values: dict[str, Any] = {}

    def write() -> None:
        read = moving if values else fields
        values.update({field.name: running(page, field) for field in read})
        _write(page, fields, values)

    return write


def _write(page: str, fields: Sequence[Field], values: Mapping[str, Any]) -> None:
    st.session_state[_LOOKED_AT] = page
    for field in fields:
        if field.follows:
            follow(field.name, values[field.name])
    written = {field.name: field.written(values[field.name]) for field in fields}
    chosen = {field.name: written[field.name] for field in fields if field.chosen}
    before = st.session_state.get(_CHOSEN, chosen)
    st.session_state[_CHOSEN] = chosen
    address.write(written, chosen != before)


def settle(page: str, field: Field, given: Any, read: Callable[[Any], Meant]) -> Meant:
    """Return what a widget gave as it is read; else say why not and return the last good one.

    What was typed stays in its field to be mended; what runs meanwhile is said, and in the link.
    """
    key, last, refused = key_of(page, field), _by_key(_LAST), _by_key(_REFUSED)
    try:
        meant = read(given)
    except ValueError as error:
        kept = last.get(key, field.default)
        refused[key] = given
        st.error(
            plain(f"{error}. Until that is mended, this page goes on with {kept}."),
            icon=":material/error:",
        )
        return read(kept)
    last[key] = given
    refused.pop(key, None)
    return meant


def _by_key(what: str) -> dict[str, Any]:
    """Return what the session knows of all fields, by their keys.

    It is in one place, since Streamlit goes through all that a session holds for every widget.
    """
    known: dict[str, Any] = st.session_state.setdefault(what, {})
    return known


def running(page: str, field: Field) -> Any:
    """Return the value that a page goes on with, whatever has been typed since."""
    value, key, refused = held(page, field), key_of(page, field), _by_key(_REFUSED)
    if key in refused and refused[key] == value:
        return _by_key(_LAST).get(key, field.default)
    return value


def number(page: str, field: Field) -> Any:
    """Show a number field with its range, and return its value."""
    key, value = key_of(page, field), held(page, field)
    # Never as a whole number: of one, the browser would read no more than its first digits, and
    # 1e9 would be 1.
    if value is not None and type(st.session_state.get(key)) is not float:
        st.session_state[key] = float(value)
    st.number_input(
        plain(label(field)),
        key=key,
        step=1.0 if field.kind is int else 0.01,
        format="%g",
        help=plain(f"{field.help} Allowed: {field.allowed(field.kind)}."),
        persist_state="session",
    )
    value = settle(page, field, held(page, field), field.check)
    caption = _standing(field, value)
    if caption:
        st.caption(plain(caption))
    return value


def numbers(page: str, chosen: Iterable[Field]) -> dict[str, Any]:
    """Show number fields and return their values by name."""
    return {field.name: number(page, field) for field in chosen}


def label(known: Parameter) -> Markdown:
    """Return what a parameter is called, with its symbol if it has one."""
    if not known.symbol:
        return plain(known.label)
    # An underscore within a word needs no mark before it, which would be read aloud, too.
    return Markdown("{} {}").format(known.label, Markdown(known.letters))


def _standing(field: Field, value: Any) -> Markdown:
    """Say how a value stands to the paper's."""
    parts = []
    if value != field.default:
        parts.append(Markdown(":orange[● changed from {:g}]").format(field.default))
    if field.paper:
        low, high = field.paper
        inside = low <= value <= high
        explored = plain(f"paper explored {low:g} to {high:g}")
        parts.append(
            explored if inside else Markdown(":orange[outside what the {}]").format(explored)
        )
    return Markdown(" · ").join(parts)


def offer(page: str, field: Field) -> dict[Any, str]:
    """Let the session hold a choice before it is drawn, what it holds or the default; return all.

    A browser knows what is chosen by its label and its place: where those have changed, the value
    is set anew, or it would go on to show, and send, what stood there before.
    """
    labels, value = field.labels, held(page, field)
    if isinstance(value, list | tuple):
        value = [key for key in value if key in labels]
    elif value is not None and value not in labels:
        value = field.default
    known, key, shown = _by_key(_LABELS), key_of(page, field), tuple(labels.items())
    if known.get(key) == shown:
        hold(page, field, value)
    else:
        known[key] = shown
        st.session_state[key] = value
    return labels


def choice(page: str, field: Field, **looks: Any) -> Any:
    """Show a choice and return its key; `looks` are for `st.selectbox`."""
    labels = offer(page, field)
    return st.selectbox(
        plain(field.label),
        list(labels),
        key=key_of(page, field),
        format_func=labels.__getitem__,
        help=plain(field.help) or None,
        persist_state="session",
        **looks,
    )


def pick(key: str, label: str, labels: Mapping[str, str], start: str = "", width: int = 260) -> str:
    """Let a person pick, by their labels, what a part of a page shows; it stands in no link.

    It begins with `start`, or with the first where that is not among them; `width` is in pixels.
    """
    names = list(labels)
    return st.selectbox(
        plain(label),
        names,
        index=names.index(start) if start in labels else 0,
        format_func=labels.__getitem__,
        key=key,
        width=width,
    )


def control(page: str, field: Field) -> Any:
    """Show a choice, a line of text or a number, whichever the field is, and return its value."""
    if field.choices:
        return choice(page, field)
    return text(page, field, field.check) if field.kind is str else number(page, field)


def several(page: str, field: Field) -> tuple[str, ...]:
    """Show a choice of several, and return their keys in the order of the labels.

    Where nothing is chosen but something is by default, a sentence says so and the default is
    returned.
    """
    labels = offer(page, field)
    chosen = st.pills(
        plain(field.label),
        list(labels),
        key=key_of(page, field),
        selection_mode="multi",
        format_func=lambda key: plain(labels[key]),
        help=plain(field.help) or None,
        persist_state="session",
    )
    if not chosen and field.default:
        st.error(plain(f"{field.label}: choose at least one."), icon=":material/error:")
        chosen = list(field.default)
    return tuple(key for key in labels if key in chosen)


def text(page: str, field: Field, read: Callable[[str], Meant], placeholder: str = "") -> Meant:
    """Show a line of text and return it as it is read, or the last one that could be."""
    hold(page, field, held(page, field))
    typed = st.text_input(
        plain(field.label),
        key=key_of(page, field),
        help=plain(field.help),
        placeholder=placeholder,
        persist_state="session",
    )
    return settle(page, field, typed, read)
