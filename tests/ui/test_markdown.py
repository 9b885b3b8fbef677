"""What a link, a file or a person says is text: in the sources, and on every page."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.testing.v1 import AppTest

from fdkvc.ui.markdown import Markdown, plain
from tests.app_pages import open_page, rerun_until, settled
from tests.command_line import ROOT
from tests.hostile import HOST, HOSTILE, hostile_dialogs, refused_dialogs

SHOWN_AS_MARKDOWN = {
    *("body", "label", "text", "help", "title", "caption", "tabs"),
    *("x_label", "y_label", "show_spinner"),
}
"""Parameters of Streamlit's functions that it shows as Markdown."""

NO_MARKDOWN = {"html", "latex", "code", "json", "text"}
"""Functions whose body is something else."""

MARKED_OPTIONS = {"pills", "segmented_control", "radio", "select_slider", "menu_button"}
"""Functions that show their options as Markdown, too."""

NEVER = {
    *("write", "write_stream", "image", "iframe", "link_button", "audio", "video", "logo"),
    *(name for name in dir(st.column_config) if name.endswith("Column")),
} - {"NumberColumn", "TextColumn"}
"""Functions and columns that no page needs, and that fetch, link or guess."""

OURS = {"equation", "letters", "symbol"}
"""LaTeX, and its letters, that stand in the sources of the policies."""


def is_shown(node: ast.expr | None, ours: bool = False) -> bool:
    """Whether all parts of an expression are literals, or have gone through `plain`.

    Only what is `ours`, a literal or a constant of the sources, may itself be called Markdown.
    """
    match node:
        case None | ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.Attribute(attr=name):
            return ours and name in OURS
        case ast.BinOp(left=one, op=ast.Add(), right=other):
            return ours and is_shown(one, ours) and is_shown(other, ours)
        case ast.Call(func=ast.Attribute(value=made, attr="join" | "replace"), args=parts) if ours:
            return all(is_shown(part, ours) for part in [made, *parts])
        case _ if ours:
            return False
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return all(map(is_shown, parts))
        case ast.BoolOp(values=parts):
            return all(map(is_shown, parts))
        case ast.ListComp(elt=part) | ast.DictComp(value=part) | ast.Lambda(body=part):
            return is_shown(part)
        case ast.Starred(value=ast.Call(func=ast.Name(id="map"), args=[function, *_])):
            return ast.unparse(function) == "plain"
        case ast.IfExp(body=one, orelse=other):
            return is_shown(one) and is_shown(other)
        case ast.Call(func=ast.Name(id=name)):
            return name in ("plain", "help_on", "Markdown")
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=attr)):
            return name == "Markdown" and attr in ("format", "join")
    return False


def unshown(source: str) -> Iterator[str]:
    """Yield each place where Streamlit is given Markdown that is neither ours nor shown as text."""
    tree = ast.parse(source)
    imports = (stmt for stmt in ast.walk(tree) if isinstance(stmt, ast.Import | ast.ImportFrom))
    imported = {name.asname or name.name for stmt in imports for name in stmt.names} - {"st"}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Markdown"), args=parts):
                yield from (ast.unparse(part) for part in parts if not is_shown(part, ours=True))
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in imported:
                continue
            case ast.Call(func=ast.Attribute(attr=name)):
                pass
            case _:
                continue
        function = getattr(st.column_config, name, None) or getattr(DeltaGenerator, name, None)
        function = function or getattr(st, name, None)
        if function is None or inspect.isclass(function):
            continue
        names = [
            parameter for parameter in inspect.signature(function).parameters if parameter != "self"
        ]
        given = dict(zip(names, node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        checked = {key: value for key, value in given.items() if key in SHOWN_AS_MARKDOWN}
        if name in NO_MARKDOWN:
            checked.pop("body", None)
        if name == "table":
            checked["data"] = given["data"]
        if name in MARKED_OPTIONS:
            checked["options"] = given.get("format_func", given["options"])
        wrong = [key for key, value in checked.items() if not is_shown(value)]
        wrong += [key for key in given if key.startswith("unsafe_allow")]
        if wrong or name in NEVER:
            yield f"line {node.lineno}: {name}({', '.join(wrong)})"


def test_streamlit_is_given_literals_and_what_went_through_plain() -> None:
    shown = [
        path for path in (ROOT / "fdkvc").rglob("*.py") if {"ui", "tour", "page"} & {*path.parts}
    ]
    every = [*shown, *(ROOT / "pages").glob("*.py")]
    sources = {path: path.read_text("utf-8") for path in every if path.name != "markdown.py"}
    assert len(sources) > 50

    places_by_file = {path: list(unshown(source)) for path, source in sources.items()}

    assert {path: places for path, places in places_by_file.items() if places} == {}


RIGHT = """
st.error("no"); st.error(plain(name)); st.info("a" if x else "b", icon=icon); fields.text(name)
st.markdown(Markdown("**{}**").format(name)); st.selectbox("Which", names); st.dataframe(table)
st.pills("Which", names, format_func=lambda name: plain(name)); st.html(name)
"""
WRONG = """
st.error(f"{name}"); st.error(name); st.markdown(Markdown(name)); st.markdown(Markdown(f"{name}"))
st.markdown(Markdown("a{}") + name); place.caption(name); st.sidebar.button(name)
st.button("Run", help=name or None); st.selectbox(label, names); st.pills("Which", names)
st.table([{"a": name} for name in names]); st.progress(share, text=name); st.write(name)
st.column_config.TextColumn("a", help=name); st.column_config.LinkColumn()
st.markdown("<b>", unsafe_allow_html=True)
"""


@pytest.mark.parametrize(("sources", "count"), [(RIGHT, 0), (WRONG, 1)])
def test_what_is_not_shown_as_text_is_noticed(sources: str, count: int) -> None:
    for source in sources.replace("; ", "\n").split("\n"):
        places = list(unshown(f"from fdkvc.ui import fields\nimport streamlit as st\n{source}"))
        assert len(places) == (count if source else 0), source


def test_words_stay_what_they_are_and_ours_do_something() -> None:
    assert plain("26.5 % and 3 %") == "26.5\u00a0% and 3\u00a0%"
    assert plain("w_c ~ 50% *") == r"w\_c \~ 50% \*"
    assert plain("This link has an error: Turn is 99.") == ("This link has an error: Turn is 99.")
    assert Markdown("**{}** {}").format("a*", Markdown("*b*")) == r"**a\*** *b*"
    assert plain(f"**{Markdown('*b*')}**") == r"\*\*\*b\*\*\*"


NOT_MARKDOWN = {
    *(
        ("Html", "body"),
        ("Code", "code_text"),
        ("Selectbox", "options"),
        ("Selectbox", "raw_value"),
    ),
    *(("TextInput", "value"), ("TextInput", "default"), ("BidiComponent", "json")),
}
"""What Streamlit shows as it is; the browser's test looks at it."""

ALIVE = re.compile(r"(?<!\\)[\[\]<$]|://|www\.|\w@|:smile|:material/home", re.IGNORECASE)
"""What makes hostile words more than text."""


def texts(message: Any) -> Iterator[tuple[str, str, str]]:
    """Yield every text of an element: of what kind, under which name, and the text."""
    for known, value in message.ListFields():
        one = isinstance(value, str | bytes) or not isinstance(value, Iterable)
        for item in [value] if one else value:
            if hasattr(item, "ListFields"):
                yield from texts(item)
            elif isinstance(item, str):
                yield message.DESCRIPTOR.name, known.name, item


def hostile_texts(app: AppTest) -> list[str]:
    """Return what stands on the page as Markdown with hostile words; none of it is alive."""
    shown_texts = [
        (kind, name, text)
        for node in settled(app)._tree
        if hasattr(getattr(node, "proto", None), "ListFields")
        for kind, name, text in texts(node.proto)
        if HOST in text.lower() and (kind, name) not in NOT_MARKDOWN
    ]
    assert [row for row in shown_texts if ALIVE.search(row[2])] == []
    return [text for _, _, text in shown_texts]


@pytest.mark.long
@pytest.mark.parametrize("page", ["step", "compare", "dialogs", "answers", "policies"])
def test_what_a_link_says_is_text(page: str) -> None:
    names = {*open_page(page).query_params} - {"schedule", "sha"}  # which may be any text

    told = hostile_texts(open_page(page, **dict.fromkeys([*names, HOSTILE], HOSTILE)))

    assert len(told) == len(names) + 1
    assert any("unknown parameter" in text for text in told)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("step", {"scenario": "own"}),
        ("compare", {"scenario": "own"}),
        ("benchmark", {"section": "ablation"}),
    ],
)
def test_what_a_person_types_is_text(page: str, link: dict[str, str]) -> None:
    app = open_page(page, **link)
    for field in app.text_input:
        field.set_value(HOSTILE)

    # What a run is called is a name, and nothing is wrong with it.
    read = [field for field in app.text_input if "/runs/" not in str(field.key)]
    assert len(hostile_texts(app.run())) == len(read) >= 1


@pytest.mark.long
def test_what_a_file_says_is_text() -> None:
    app = open_page("dialogs", file="own")
    bring(app, hostile_dialogs())
    # The transcript follows the card.
    rerun_until(app, lambda app: "Show" in [selectbox.label for selectbox in app.selectbox])
    hostile_texts(app)

    bring(app, refused_dialogs())

    told, *_ = hostile_texts(app)
    # The file, the dialog of it, and the file that stays.
    assert told.count(plain(HOSTILE[:50])) == 3
    assert told in [error.value for error in app.error]


def bring(app: AppTest, content: bytes) -> None:
    (uploader,) = [place for place in app.file_uploader if place.label == "Dialogs"]
    uploader.set_value([(f"{HOSTILE}.json", content, "application/json")]).run()
