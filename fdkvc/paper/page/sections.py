"""The page Benchmark: a benchmark section by section, and sweeps of hyperparameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.core.parameters import Field
from fdkvc.paper.page import ablation, choices
from fdkvc.paper.page.alignment import show_alignment
from fdkvc.paper.page.claims import show_answer, show_claims
from fdkvc.paper.page.figures import show_figures
from fdkvc.paper.page.past import Kind, Past, listed_runs, open_run
from fdkvc.paper.page.runs import show_runs
from fdkvc.paper.page.tables import show_tables
from fdkvc.paper.study import Study
from fdkvc.runs.export import stem_of
from fdkvc.ui import fields
from fdkvc.ui.downloads import files_of, show_files
from fdkvc.ui.fields import held, hold
from fdkvc.ui.frame import open_section_of

SECTIONS: dict[str, tuple[str, Callable[[str, Study], None]]] = {
    "claims": ("Claims", show_claims),
    "tables": ("Tables", show_tables),
    "alignment": ("Alignment", show_alignment),
    "figures": ("Figures", show_figures),
    "runs": ("Two runs", show_runs),
}
"""The sections of a benchmark: label, and what shows them."""

ABLATION = "ablation"
"""The section of sweeps."""

LABELS = {name: label for name, (label, _) in SECTIONS.items()}
SECTION = Field(
    "Section", name="section", default="claims", choices={**LABELS, ABLATION: "Ablation"}
)

TABLES = (
    "summary adaptation paired latency cost cells claims series alignments alignment_differences "
    "dialogs"
)
FILES = ("run.json", *(f"{name}.csv" for name in TABLES.split()), "tables.md")
"""The files of a study, in the order in which they are offered."""


def link_fields(page: str, link: Mapping[str, str]) -> Sequence[Field]:
    """Return the fields of the address, for a link or else those of the open section."""
    section = link.get(SECTION.name) if link else held(page, SECTION)
    return [SECTION, *_kind_of(section).link_fields(page, link)]


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is wrong."""
    current = dict(link)
    second = current.pop("second", "–")  # links of earlier versions have it
    current.pop("second_values", None)
    wrong = fields.adopt_link(page, link_fields(page, current), current)
    if second != "–":
        wrong.append(
            "This link has an error: it sweeps two hyperparameters at once, which this version "
            f"does not do. Shown without {second}."
        )
    return wrong


def _kind_of(section: str | None) -> Kind:
    return ablation.kind() if section == ABLATION else choices.kind()


def show(page: str, place: DeltaGenerator) -> None:
    """Show a run section by section, and in `place` the list of runs and their files."""
    answer = st.container(key="page-answer")
    description = st.container()
    section = held(page, SECTION)
    kind = _kind_of(section)
    with description:
        visible_run = open_run(page, kind, place)
    field = SECTION
    if len(listed_runs(choices.kind())) < 2:
        labels = {name: label for name, label in SECTION.labels.items() if name != "runs"}
        field = replace(SECTION, choices=labels)  # there is nothing to compare with
    if section not in field.labels:
        hold(page, SECTION, section := SECTION.default)
    open_section_of(page, field, {section: partial(_draw, page, section, visible_run, answer)})
    if visible_run is not None:
        with place, st.popover("Download", icon=":material/download:"):
            _offer(page, visible_run, stem_of(kind.describe(visible_run.result.settings)))


def _draw(page: str, section: str, visible_run: Past | None, answer: DeltaGenerator) -> None:
    if visible_run is None:
        return
    if section == ABLATION:
        ablation.show(page, visible_run, answer)
        return
    with answer:
        show_answer(visible_run.result.study)
    SECTIONS[section][1](page, visible_run.result.study)


def _offer(page: str, visible_run: Past, stem: str) -> None:
    run = visible_run.result
    study = getattr(run, "study", None)  # a sweep has none
    if study is None:
        names = ["run.json", *run.tables]
    else:
        names = [*FILES, *(f"sweep_{parameter}.csv" for parameter in study.sweeps)]
    show_files(page, partial(files_of, run), names, stem)
