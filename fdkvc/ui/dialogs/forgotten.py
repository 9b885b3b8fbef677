"""What policies forgot in all dialogs of a file, and which policy and budget would hold it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.corpora.model_folder import parse_config
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.arguments import SOURCE_LABELS
from fdkvc.experiments.model_shape import SHAPE, SHAPES, ModelShape, shape_of
from fdkvc.experiments.plan import budget_columns, plan_sentence, plan_table, smallest_budgets
from fdkvc.experiments.statistics import MIN_CLUSTERS
from fdkvc.kinds.replay import ReplayRun, sources_grid
from fdkvc.limits import MAX_CONFIG_MEGABYTES, MAX_LANES
from fdkvc.parameters import Field
from fdkvc.ui.dialogs import choices
from fdkvc.ui.dialogs.files import DialogFile
from fdkvc.ui.dialogs.vectors import LAYERS, LETTERS, VECTORS, ReadRecordings, Vectors
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, pick, problems
from fdkvc.ui.kit.frame import show_grid
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import ENTRY, TURN
from fdkvc.ui.stage.follow import arrive
from fdkvc.words import count

LISTED = 200
"""Forgotten arguments in the list, oldest mention first."""


@dataclass(frozen=True, eq=False)
class Replayed(ReplayRun):
    """A replay of the dialogs of a file, as a model read them if there is one."""

    file: DialogFile = field(kw_only=True)
    model: Vectors | None = None

    def recording(self, dialog: int) -> Recording:
        """Return one of the file's dialogs that ran."""
        ran = self.recordings
        return ran[ran.places.index(dialog) if isinstance(ran, ReadRecordings) else dialog]


def show_plan(page: str, done: Replayed) -> None:
    """Show the smallest budget of each policy in entries and bytes, and the conclusion."""
    st.header("Which policy, and how much cache?", anchor=False)
    with st.container(horizontal=True):
        shape = SHAPES[fields.choice(page, SHAPE)]
        config = st.file_uploader(
            "Or a config.json of your own",
            type="json",
            key=f"{page}/plan/config",
            max_upload_size=MAX_CONFIG_MEGABYTES,
        )
    if config is not None:
        try:
            shape = shape_of(parse_config(config.getvalue()))
        except ValueError as error:
            problems(f"{error}. Using {shape.name}.")
    sentence, columns = _plan(done, shape)
    st.markdown(plain(sentence))
    show_grid(columns, f"Smallest budget, and its bytes in {shape.name}")
    st.caption(
        "A dash: no budget of this run is enough. Without a trace, entries are words and "
        "punctuation marks, not a model's tokens."
    )


@cached
def _plan(done: Replayed, shape: ModelShape) -> tuple[str, dict[str, list[str]]]:
    """Return the conclusion, and the smallest budgets as columns."""
    settings = done.settings
    plan = plan_table(settings, done.table, done.tokens, shape)
    titles = {policy.name: policy.title for policy in settings.policies}
    smallest = smallest_budgets(plan[plan.heads == settings.heads[0]])
    sentence = plan_sentence(settings, done.table, plan, done.tokens, shape)
    return sentence, budget_columns(smallest, lambda policy, _: titles[policy])


def show_forgotten(page: str, done: Replayed) -> None:
    """Show the recall by source and age, and the list of what a policy forgot."""
    settings = done.settings
    st.header("What was forgotten", anchor=False)
    titles = {policy.name: policy.title for policy in settings.policies}
    budgets = sorted(settings.budgets)
    with st.container(horizontal=True):
        labels = {str(budget): f"{budget:,} entries" for budget in budgets}
        middle = str(budgets[len(budgets) // 2])
        budget = int(pick(f"{page}/forgotten/budget", "At budget", labels, middle))
        last = settings.policies[-1].name
        policy = pick(f"{page}/forgotten/policy", "Forgotten by", titles, last)
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
    lost = done.forgotten
    same_run = (lost.policy == policy) & (lost.budget == budget)
    lost = lost[same_run & (lost.heads == settings.heads[0])]
    if lost.empty:
        st.info(plain(f"{titles[policy]} held every argument at this budget."))
        return
    words = f"{titles[policy]} forgot {count(len(lost), 'argument')}"
    if len(lost) > LISTED:
        words += f", of which these {LISTED} were mentioned longest ago"
    st.markdown(plain(f"{words}. Select one to see the turn that needed it."))
    lost = lost.head(LISTED)
    event: Any = st.dataframe(
        _listed(lost),
        hide_index=True,
        key=f"{page}/forgotten/list",
        on_select="rerun",
        selection_mode="single-row",
    )
    selection = (tuple(event.selection.rows), policy, budget)
    before = st.session_state.get(f"{page}/forgotten/seen")
    st.session_state[f"{page}/forgotten/seen"] = selection
    if selection[0] and before != selection:
        go_to(page, done, lost.iloc[selection[0][0]].to_dict())


def _listed(lost: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "turns ago": lost.age,
            "value": lost.value,
            "argument": lost.call + ": " + lost.slot,
            "mentioned by": lost.source.map(SOURCE_LABELS),
            "in turn": lost.mentioned,
            "evicted in": lost.lost,
            "needed in": lost.turn,
            "dialog": lost.dialog,
        }
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
