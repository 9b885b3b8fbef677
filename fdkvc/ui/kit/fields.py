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
"""Session keys: the last valid values, the refused ones, and the labels of each choice."""

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
    """Store a value in the session; only before its widget is drawn, or in a callback.

    An equal value is not stored again: the browser would reset the widget and undo what the user
    has typed meanwhile.
    """
    key = key_of(page, field)
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value


def reset(page: str, fields: Iterable[Field]) -> None:
    """Store the defaults in the session."""
    for field in fields:
        hold(page, field, field.default)


def hold_and_rerun(page: str, values: Iterable[tuple[Field, Any]]) -> None:
    """Rerun the page with these values, although their widgets are drawn already.

    A button that reads inputs beside it calls this where it is drawn: its callback would see the
    inputs of the previous run.
    """
    st.session_state[_PENDING] = page, list(values)
    st.rerun()


def take_pending() -> None:
    """Store the values left by `hold_and_rerun`; before anything is drawn."""
    page, values = st.session_state.pop(_PENDING, ("", ()))
    for field, value in values:
        hold(page, field, value)


def enter(page: str) -> None:
    """Remember the link by which the browser opened this page, or went back to it."""
    visited = address.follow(page)
    # On the same page, Streamlit keeps reporting the address by which the page was opened.
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
    """Store the values of a link in the session; return a sentence for each invalid one."""
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
    """Return a sentence: what is wrong with a field of a link, and the value used instead."""
    shown = field.written(instead) or "none"
    return f"This link has an error: {error}. Using {shown} instead."


def keep_to(
    page: str, field: Field, link: Mapping[str, str], instead: Any, where: str = ""
) -> list[str]:
    """Replace a value that is not available here; return a sentence if a link requested it.

    Parameters
    ----------
    field : Field
        Its range or choices are those available here.
    link : mapping of str to str
        From `arriving_link`; empty where no link was followed.
    instead : object
        The replacement.
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
    """Store a link's values in the session; return a sentence for each error.

    Without a link, fields that follow take their values from the page before.

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
        "This link has an error: "
        + (instead_of(name) or f"it has an unknown parameter {name!r}")
        + "."
        for name in link
        if name not in names
    ]


def follow(name: str, value: Any) -> None:
    """Share a value with the other pages, by name."""
    st.session_state[_FOLLOWING] = {**st.session_state.get(_FOLLOWING, {}), name: value}


def following(page: str, name: str, own: Meant) -> Meant:
    """Return the value shared by another page; otherwise the page's own.

    A shared value is used once: until the page writes its address, and never against a link.
    """
    brought: Mapping[str, Meant] = _brought_along(page)
    return brought.get(name, own)


def _brought_along(page: str) -> Mapping[str, Any]:
    known: Mapping[str, Any] = st.session_state.get(_FOLLOWING, {})
    return {} if st.session_state.get(_LOOKED_AT) == page else known


def write_link(page: str, fields: Sequence[Field]) -> None:
    """Write every value into the page's address; Back restores the previous choice."""
    link_writer(page, fields, ())()


def link_writer(page: str, fields: Sequence[Field], moving: Sequence[Field]) -> Callable[[], None]:
    """Return a function that writes the address: all fields first, then only the moving ones.

    For a fragment: the browser may request its run with widget values from before the page's own
    run, and those must not be written.

    Parameters
    ----------
    moving : sequence of Field
        The fields that the fragment changes.
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
    """Return a widget's value as `read` parses it, or show the error and return the last valid one.

    The input stays in its field to be corrected; the link has the value that is still used.
    """
    key, last, refused = key_of(page, field), _by_key(_LAST), _by_key(_REFUSED)
    try:
        meant = read(given)
    except ValueError as error:
        kept = last.get(key, field.default)
        refused[key] = given
        st.error(
            plain(f"{error}. Still using {kept}."),
            icon=":material/error:",
        )
        return read(kept)
    last[key] = given
    refused.pop(key, None)
    return meant


def _by_key(what: str) -> dict[str, Any]:
    """Return the session's dictionary of this kind, by field key.

    One dictionary, because Streamlit walks all session entries for every widget.
    """
    known: dict[str, Any] = st.session_state.setdefault(what, {})
    return known


def running(page: str, field: Field) -> Any:
    """Return the value that the page uses: the last valid one."""
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
    """Return the label of a parameter, with its symbol if it has one."""
    if not known.symbol:
        return plain(known.label)
    # An underscore within a word needs no mark before it, which would be read aloud, too.
    return Markdown("{} {}").format(known.label, Markdown(known.letters))


def _standing(field: Field, value: Any) -> Markdown:
    """Compare a value with the paper's."""
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
    """Store a valid choice before its widget is drawn; return all labels.

    The browser identifies a choice by label and position: after these change, the value is stored
    again, or the browser would keep showing and sending the old one.
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
    """Show a selectbox that is not part of the link, and return the chosen key.

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

    An empty choice is an error if the default is not empty; the default is returned.
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
    """Show a text input and return its value as `read` parses it, or the last valid one."""
    hold(page, field, held(page, field))
    typed = st.text_input(
        plain(field.label),
        key=key_of(page, field),
        help=plain(field.help),
        placeholder=placeholder,
        persist_state="session",
    )
    return settle(page, field, typed, read)
