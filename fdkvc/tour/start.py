"""The first page: a value that a cache has lost, and links to the three ways to use the app."""

import streamlit as st

from fdkvc.conversations.page.files import HeadChoice, shipped_file, shown_recording
from fdkvc.explain.counterfactual import Change, counterfactual, nearest_first
from fdkvc.player.run import StageRun
from fdkvc.policies import policy_named
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import Page, panel, side_by_side
from fdkvc.ui.lanes import Lane, load_lanes
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.verdict.page.evidence import headline
from fdkvc.verdict.page.transcript import DEMANDS, Outcome, outcomes_of, show_transcript

PAGE = "start"
FILE, POLICY, BUDGET = "evening", "fd-kvc", 48

DOORS = (
    ("Understand", "story", "auto_stories", "seven scenes"),
    ("Choose for my conversations", "dialogs", "forum", "policy and budget"),
    ("Check the paper", "benchmark", "leaderboard", "its tables, measured again"),
)


def moment() -> tuple[HeadChoice, Lane, Outcome]:
    """Return a dialog, a run over it, and what a call needed that was evicted before it."""
    file = shipped_file(FILE)
    head = HeadChoice.of(file, *shown_recording(file, 0, None, ""))
    (lane,) = load_lanes(head, [policy_named(POLICY)], BUDGET)
    for outcome in outcomes_of(lane.run, head.recording):
        if outcome.demand.kind == "call" and outcome.demand.mentions[-1].turn < outcome.lost:
            return head, lane, outcome
    raise AssertionError("the shipped dialog has no call that lost a value")


@cached
def nearest_changes(run: StageRun, turn: int, token: int) -> list[Change]:
    """Return the changes of a setting that would have kept an entry, the nearest first."""
    changes = nearest_first(counterfactual(run.trace, run.dialogs, 0, turn, token))
    return [change for change in changes if change.reversing_value is not None]


@st.fragment
def show_what_would_have_kept(run: StageRun, turn: int, token: int) -> None:
    """Say what would have kept an entry, once a person asks."""
    # No popover: it closes at the click on a link to another page, and its late run blanks that.
    place = st.expander("What would have kept it?", key=f"{PAGE}/kept", on_change="rerun")
    if place.open:
        with place, st.spinner("Running the dialog again with one setting changed at a time …"):
            changes = nearest_changes(run, turn, token)[:3]
            st.markdown(
                "Each of these alone:" if changes else "No setting alone, at any value tried."
            )
            lines = (Markdown("- {}").format(change.words) for change in changes)
            st.markdown(Markdown("\n").join(lines))


def show(page: Page) -> None:
    """Show the doors, and what was lost: in a sentence, and in the dialog."""
    head, lane, lost = moment()
    entry = lost.mentions[-1][0]
    link = {"file": FILE, "policies": POLICY, "budget": f"{BUDGET}", "view": "cache"}
    link |= {"turn": f"{lost.lost}", "entry": f"{entry}"}
    with page.beside_title:
        st.page_link(
            "pages/dialogs.py",
            label="Step through",
            icon=":material/step_over:",
            query_params=link,
        )
    with side_by_side("doors"):
        for name, target, icon, words in DOORS:
            with panel(f"door-{target}"):
                st.page_link(
                    f"pages/{target}.py",
                    label=Markdown("**{}:** {}").format(name, words),
                    icon=f":material/{icon}:",
                    width="stretch",
                )
    open_on(page, lane.run.dialogs, lambda: (lost.demand.turn, entry))
    with st.container(key="headline"):
        st.header(plain(headline(DEMANDS["call"], head.recording, lane, lost)), anchor=False)
        show_what_would_have_kept(lane.run, lost.lost, entry)
    show_transcript(PAGE, head.recording, [lane], lane, lambda: None, sentences=1)
    st.caption(
        "Vectors here come from the letters of words, not their meaning, so scores reflect age and "
        "chance. The page Dialogs can use those of a language model."
    )
