"""What policies forgot in all dialogs of a file, and which policy and budget would hold it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.statistics import MIN_CLUSTERS
from fdkvc.kinds.replay import ReplayRun, sources_grid
from fdkvc.limits import MAX_LANES
from fdkvc.parameters import Field
from fdkvc.ui.dialogs import choices
from fdkvc.ui.dialogs.files import DialogFile
from fdkvc.ui.dialogs.vectors import LAYERS, LETTERS, VECTORS, ReadRecordings, Vectors
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, pick
from fdkvc.ui.kit.frame import show_grid
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import ENTRY, TURN
from fdkvc.ui.stage.follow import arrive


@dataclass(frozen=True, eq=False)
class Replayed(ReplayRun):
    """A replay of the dialogs of a file, as a model read them if there is one."""

    file: DialogFile = field(kw_only=True)
    model: Vectors | None = None

    def recording(self, dialog: int) -> Recording:
        """Return one of the file's dialogs that ran."""
        ran = self.recordings
        if isinstance(ran, ReadRecordings):
            read: Recording = ran[ran.places.index(dialog)]
            return read
        return self.file.recording(dialog)


def show_forgotten(page: str, done: Replayed) -> None:
    """Show the recall by source and age, and the list of what a policy forgot."""
    settings = done.settings
    st.header("What was forgotten", anchor=False)
    budgets = sorted(settings.budgets)
    labels = {str(budget): f"{budget:,} entries" for budget in budgets}
    middle = str(budgets[len(budgets) // 2])
    budget = int(pick(f"{page}/forgotten/budget", "At budget", labels, middle))
    grid = sources_grid(done.sources, settings, budget)
    with st.container(key="table-of-sources"):
        show_grid(grid, "Recall of call arguments by source and age")
    st.caption(
        plain(
            "Call-argument recall in percent, a mean over dialogs, with its 95 % interval where "
            f"there are at least {MIN_CLUSTERS} clusters; by the kind of span that mentioned the "
            "value last, and how many turns ago."
        )
    )


def go_to(page: str, done: Replayed, row: Mapping[Any, Any]) -> None:
    """Show the moment at which a forgotten argument was needed, and rerun the page."""
    names = [transcript.name for transcript in done.file.transcripts]
    dialog = names.index(row["dialog"])
    policies = held(page, choices.POLICIES)
    if row["policy"] not in policies:  # such as one with the prompt pinned
        policies = (*policies[: MAX_LANES - 1], row["policy"])
    needed = (row["turn"], row["call"], row["call_number"]), row["slot"]
    token = next(
        int(mentions[-1][0])
        for demand, mentions in done.recording(dialog).evidence
        if (demand.needed_by, demand.slot) == needed
    )
    model, layers = done.model or (LETTERS, LAYERS.default)
    values: list[tuple[Field, Any]] = [(VECTORS, model), (LAYERS, layers)]
    values += [(choices.DIALOG, dialog), (choices.POLICIES, policies)]
    values += [(choices.WHOSE, row["policy"]), (TURN, int(row["turn"])), (ENTRY, token)]
    if row["budget"] <= choices.BUDGET.high:
        values.append((choices.BUDGET, int(row["budget"])))
    arrive(page, choices.which_dialog(page, dialog, model))
    fields.hold_and_rerun(page, values)
