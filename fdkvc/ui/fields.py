"""The values of a page's view: each in a widget and in the permalink, as its field declares it.

How a value travels, in a run of a page's script::

    address ──1 arriving_link──► adopt_link ──► session ◄──2── another page's `share`
                                                "page/name"
    button, card ──3 hold_and_rerun──► pending ──► ▲ │
                                                   │ 4 widget (choice, number, text …)
                                     what was typed┘ ▼
    address ◄──6 write_link── running ◄──5 settle── value that the page uses

1. A link is read once, when the browser opens the page by it or goes Back or Forward to it. Each
   field parses its part; of an invalid one the page says so and uses the default.
2. Without a link, fields that follow take what the page before shared.
3. A value may be set only before its widget is drawn. What is set later waits under *pending* and
   is stored at the start of the next run.
4. The widget shows what the session has under ``page/name``, and stores there what is typed.
5. The page uses the last valid value, and says what is wrong with another.
6. The address gets every value, so that it means the same when a default changes. A chosen value
   makes an entry in the browser's history, one that only moves (a turn, an entry) does not.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from fdkvc.core.parameters import Field, Parameter
from fdkvc.core.words import listed
from fdkvc.ui import address
from fdkvc.ui.markdown import Markdown, plain

# Keys of the session.
_PENDING, _SHOWN, _CHOSEN = "pending", "shown", "chosen"
_SHARED, _LOOKED_AT = "shared", "looked-at"
_TYPED = "typed"
"""The session's key of what was typed last in each field, with the value that is used."""

_LABELS = "labels"
"""The session's key of the labels of each choice."""

Value = TypeVar("Value")


def key_of(page: str, field: Field) -> str:
    """Return where the session holds a page's value."""
    return "/".join(filter(None, (page, field.owner, field.name)))


def held(page: str, field: Field) -> Any:
    """Return the value that the session holds."""
    value = st.session_state.get(key_of(page, field), field.default)
    is_integer = field.kind is int and isinstance(value, float) and value.is_integer()
    return int(value) if is_integer else value


def hold(page: str, field: Field, value: Any) -> None:
    """Store a value in the session; only before its widget is drawn, or in a callback.

    An equal value is not stored: the browser would reset the widget and lose what is typed.
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

    For a button that reads the inputs beside it: its callback would see those of the last run.
    """
    st.session_state[_PENDING] = page, list(values)
    st.rerun()


def arriving_link(page: str) -> Mapping[str, str]:
    """Return the link by which the browser just opened this page or went back to it; else nothing.

    Before anything is drawn, as it stores the values that `hold_and_rerun` left.
    """
    place, values = st.session_state.pop(_PENDING, ("", ()))
    for field, value in values:
        hold(place, field, value)
    link = address.follow(page)
    # On the same page, Streamlit keeps reporting the address by which the page was opened.
    if st.session_state.get(_SHOWN) != page:
        st.session_state[_SHOWN] = page
        link = st.query_params.to_dict()
    if link is None:
        return {}
    st.session_state.pop(_CHOSEN, None)  # following a link adds no second entry to the history
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
            wrong.append(link_error(field, error, value))
        hold(page, field, value)
    return wrong


def link_error(field: Field, error: object, instead: Any) -> str:
    """Return a sentence: what is wrong with a field of a link, and the value used instead."""
    return (
        f"This link has an error: {error}. Using {field.written(instead) or 'none'} instead."
    )


def keep_to(
    page: str, field: Field, link: Mapping[str, str], instead: Any, place: str = ""
) -> list[str]:
    """Replace a value that is not available here; return a sentence if a link requested it.

    The field has the range available here; `place` ends the sentence.
    """
    try:
        field.check(held(page, field))
    except ValueError as error:
        hold(page, field, instead)
        if field.name in link:
            return [link_error(field, f"{error}{place}", instead)]
    return []


def adopt_link(page: str, fields: Sequence[Field], link: Mapping[str, str]) -> list[str]:
    """Store a link's values in the session; return a sentence for each error.

    Without a link, fields that follow take their values from the page before.
    """
    if not link:
        brought = shared(page)
        for field in fields:
            if field.follows and field.name in brought:
                hold(page, field, brought[field.name])
        return []
    st.session_state[_LOOKED_AT] = page
    wrong = adopt(page, fields, link)
    names = {field.name for field in fields}
    unknown = []
    for name, value in link.items():
        if value and name not in names:
            unknown.append(repr(name))
    if unknown:
        parameters = "an unknown parameter" if len(unknown) == 1 else "unknown parameters"
        wrong.append(f"This link has an error: it has {parameters} {listed(unknown)}.")
    return wrong


def is_new(place: str, subject: object) -> bool:
    """Store what a place of the session is about; return whether it has changed.

    The first subject is not a change.
    """
    last_subject: object = st.session_state.get(place, subject)
    st.session_state[place] = subject
    return last_subject != subject


def share(name: str, value: Any) -> None:
    """Share a value with the other pages, by name."""
    st.session_state[_SHARED] = {**st.session_state.get(_SHARED, {}), name: value}


def shared(page: str) -> Mapping[str, Any]:
    """Return the values shared by other pages, by name.

    A page uses them once: until it writes its address, and never against a link.
    """
    values: Mapping[str, Any] = st.session_state.get(_SHARED, {})
    return {} if st.session_state.get(_LOOKED_AT) == page else values


def write_link(page: str, fields: Sequence[Field]) -> None:
    """Write every value into the page's address; Back restores the previous choice."""
    link_writer(page, fields)()


def link_writer(page: str, fields: Sequence[Field]) -> Callable[[], None]:
    """Return a function that writes the address: of all fields once, then of navigation only.

    For a fragment, in which only those change: the browser may request its run with widget values
    from before the page's own run, and those must not be written.
    """
    moving = [field for field in fields if not field.chosen]
    values: dict[str, Any] = {}

    def write() -> None:
        read = moving if values else fields  # empty only at the first call, by the page itself
        values.update({field.name: running(page, field) for field in read})
        st.session_state[_LOOKED_AT] = page
        for field in fields:
            if field.follows:
                share(field.name, values[field.name])
        link = {field.name: field.written(values[field.name]) for field in fields}
        chosen = {field.name: link[field.name] for field in fields if field.chosen}
        previous_choice = st.session_state.get(_CHOSEN, chosen)
        st.session_state[_CHOSEN] = chosen
        address.write(link, chosen != previous_choice)

    return write


def problems(*sentences: str) -> None:
    """Say what is wrong, a sentence each; an empty one is left out.

    A command between backticks also stands below, to be copied.
    """
    for sentence in filter(None, sentences):
        st.error(plain(sentence), icon=":material/error:")
        for command in re.findall("`(pip [^`]+)`", sentence):
            st.code(command, language=None)


def settle(page: str, field: Field, text: Any, read: Callable[[Any], Value]) -> Value:
    """Return a widget's value as `read` parses it; show an error and use the last valid one."""
    key = key_of(page, field)
    typed = _by_key(_TYPED)
    try:
        meant = read(text)
    except ValueError as error:
        _, last = typed.get(key, (None, field.default))
        typed[key] = text, last
        problems(f"{error}. Still using {last}.")
        return read(last)
    typed[key] = text, text  # what was typed, and the value used
    return meant


def _by_key(name: str) -> dict[str, Any]:
    """Return a dictionary by field key; one for all fields, since Streamlit walks every entry."""
    values: dict[str, Any] = st.session_state.setdefault(name, {})
    return values


def running(page: str, field: Field) -> Any:
    """Return the value that the page uses: the last valid one."""
    value = held(page, field)
    typed_value, settled_value = _by_key(_TYPED).get(key_of(page, field), (value, value))
    return settled_value if typed_value == value else value


def number(page: str, field: Field) -> Any:
    """Show a number field with its range, and return its value."""
    key = key_of(page, field)
    value = held(page, field)
    help = f"{field.help} Allowed: {field.allowed(field.kind)}."
    tried = ""
    if field.paper:
        low, high = field.paper
        # Both ends with as many decimals as the longer one.
        digits = max(len(f"{end:g}".partition(".")[2]) for end in field.paper)
        tried = f"The FD-KVC paper tried {low:.{digits}f} to {high:.{digits}f}"
        help += f" {tried}."
    # Always as a float: of 1e9 typed into a field of integers, the browser would read only the 1.
    if value is not None and type(st.session_state.get(key)) is not float:
        st.session_state[key] = float(value)
    st.number_input(
        plain(label(field)),
        key=key,
        step=1.0 if field.kind is int else 0.01,
        format="%g",
        help=plain(help),
        persist_state="session",
    )
    value = settle(page, field, held(page, field), field.check)
    if field.paper and not low <= value <= high:
        st.caption(Markdown(":orange[{}; this is outside]").format(tried))
    return value


def numbers(page: str, chosen: Iterable[Field]) -> dict[str, Any]:
    """Show number fields and return their values by name."""
    return {field.name: number(page, field) for field in chosen}


def label(parameter: Parameter) -> Markdown:
    """Return the label of a parameter, with its symbol if it has one."""
    # Letters are not escaped: screen readers would read the backslash of w\_c aloud.
    words = Markdown("{} ({})") if parameter.symbol else Markdown("{}")
    return words.format(parameter.label, Markdown(parameter.letters))


def offer(page: str, field: Field) -> dict[Any, str]:
    """Store a valid choice before its widget is drawn; return all labels.

    The browser identifies a choice by label and position: when these change, it is stored again.
    """
    labels = field.labels
    value = held(page, field)
    if isinstance(value, list | tuple):
        value = [key for key in value if key in labels]
    elif value is not None and value not in labels:
        value = field.default
    # The labels when the widget was last drawn.
    drawn_labels = _by_key(_LABELS)
    key = key_of(page, field)
    if drawn_labels.get(key) == list(labels.items()):
        hold(page, field, value)
    else:
        drawn_labels[key] = list(labels.items())
        st.session_state[key] = value
    return labels


def choice(page: str, field: Field, applies: bool = True, **looks: Any) -> Any:
    """Show a choice and return its key, the default where it does not apply.

    `looks` are for `st.selectbox`; with the width ``content`` it is as wide as its longest label.
    """
    if not applies:
        hold(page, field, field.default)
        return field.default
    labels = offer(page, field)
    # 8 pixels for a letter, 76 for the padding and the arrow.
    if looks.get("width") == "content":
        looks["width"] = max(160, 76 + 8 * max(map(len, labels.values())))
    return st.selectbox(
        plain(field.label),
        list(labels),
        key=key_of(page, field),
        format_func=labels.__getitem__,
        help=plain(field.help) or None,
        **{"persist_state": "session", **looks},
    )


def pick(key: str, label: str, labels: Mapping[str, str], start: str = "") -> str:
    """Show a choice that is not in links, first at `start` or the first label; return the key."""
    first = start if start in labels else next(iter(labels))
    field = Field(label, name=key, default=first, choices=labels)
    return str(choice("", field, width="content", persist_state=None))


def segments(key: str, label: str, labels: Mapping[str, str], **looks: Any) -> str:
    """Show a row of buttons with one chosen, at first the first; return its key.

    `looks` are for `st.segmented_control`.
    """
    if st.session_state.get(key) not in labels:
        st.session_state[key] = next(iter(labels))
    chosen = st.segmented_control(
        plain(label),
        list(labels),
        format_func=lambda name: plain(labels[name]),
        key=key,
        required=True,
        **{"label_visibility": "collapsed", **looks},
    )
    return str(chosen)


def control(page: str, field: Field) -> Any:
    """Show a choice, a line of text or a number, whichever the field is, and return its value."""
    if field.choices:
        return choice(page, field)
    return text(page, field, field.check) if field.kind is str else number(page, field)


def several(page: str, field: Field) -> tuple[str, ...]:
    """Show a choice of several, and return their keys in the order of the labels.

    Where there must be one, the last choice is not undone: it is shown again, with a sentence.
    """
    labels = offer(page, field)
    key = key_of(page, field)
    typed = _by_key(_TYPED)
    wrong = ""
    try:
        chosen = field.check_several(st.session_state[key])
    except ValueError as error:
        _, last = typed.get(key, (None, field.default))
        # What was chosen last may be no longer on offer.
        chosen = [name for name in last if name in labels] or list(field.default)
        st.session_state[key] = chosen
        wrong = f"{error}. Still using {listed([labels[name] for name in chosen])}."
    typed[key] = chosen, chosen
    st.pills(
        plain(field.label),
        list(labels),
        key=key,
        selection_mode="multi",
        format_func=lambda name: plain(labels[name]),
        help=plain(field.help) or None,
        persist_state="session",
    )
    problems(wrong)
    return tuple(name for name in labels if name in chosen)


def text(page: str, field: Field, read: Callable[[str], Value]) -> Value:
    """Show a text input and return its value as `read` parses it, or the last valid one."""
    hold(page, field, held(page, field))
    typed = st.text_input(
        plain(field.label),
        key=key_of(page, field),
        help=plain(field.help),
        persist_state="session",
    )
    return settle(page, field, typed, read)
