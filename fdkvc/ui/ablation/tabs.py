"""The tabs of the ablation page: a sweep, and a search; each with its own sidebar and link."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fdkvc.parameters import Field
from fdkvc.ui.ablation import choices, search, sections
from fdkvc.ui.kit.fields import held
from fdkvc.ui.kit.frame import open_section_of

SECTION = Field(
    "Section",
    "",
    name="section",
    default="sweep",
    choices={"sweep": "Sweep", "search": "Search"},
    chosen=False,
)


def fields_of(page: str, link: Mapping[str, str]) -> list[Field]:
    """Return the fields of the address, for a link or else the session's values."""
    searches = (link.get(SECTION.name) if link else held(page, SECTION)) == "search"
    of_section = search.link_fields if searches else choices.link_fields
    return [SECTION, *of_section(page, link)]


def show(page: str) -> None:
    """Show the tab that is open."""
    shows = {"sweep": partial(sections.show, page), "search": partial(search.show, page)}
    open_section_of(page, SECTION, shows)
