"""The first page: a forgotten word that comes back, what one may do here, and one eviction."""

import streamlit as st

from fdkvc.conversations.page.files import HeadChoice, shipped_file, shown_recording
from fdkvc.models.page.forgotten_word import show_forgotten_word
from fdkvc.player.run import StageRun
from fdkvc.policies import policy_named
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import Page, panel, side_by_side
from fdkvc.ui.lanes import load_lanes
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.verdict.page.headline import headline
from fdkvc.verdict.page.transcript import DEMANDS, Outcome, outcomes_of, show_transcript

PAGE = "start"
FILE, POLICY, BUDGET = "evening", "fd-kvc", 48

DOORS: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (
    ("Watch a policy", "step", "step_over", "turn by turn", {}),
    ("Judge my conversations", "dialogs", "forum", "which setting for them", {}),
    ("What did my agent forget?", "dialogs", "history", "an example log", {"file": "agent"}),
    ("Check the paper", "benchmark", "leaderboard", "are its numbers right?", {}),
)
"""What a person may want to do: its page and icon, what one gets there, and the page's link."""


@cached
def moment() -> tuple[HeadChoice, StageRun, Outcome]:
    """Return a dialog, a run over it, and what a call needed that was evicted before it."""
    file = shipped_file(FILE)
    head = HeadChoice.of(file, *shown_recording(file.recording(0)))
    (lane,) = load_lanes(head, [policy_named(POLICY)], BUDGET)
    for outcome in outcomes_of(lane, head.recording):
        if outcome.demand.kind == "call" and outcome.demand.mentions[-1].turn < outcome.lost:
            return head, lane, outcome
    raise AssertionError("the shipped dialog has no call that lost a value")


def show(page: Page) -> None:
    """Show the word that comes back, the doors, and a dialog with a value that was lost."""
    show_forgotten_word(PAGE)
    with side_by_side("doors"):
        for number, (name, target, icon, words, link) in enumerate(DOORS):
            with panel(f"door-{number}"):
                st.page_link(
                    f"pages/{target}.py",
                    label=Markdown("**{}** – {}").format(name, words),
                    icon=f":material/{icon}:",
                    width="stretch",
                    query_params=link,
                )
    head, lane, lost = moment()
    open_on(page, lane.dialogs, lambda: (lost.demand.turn, lost.mentions[-1][0]))
    with st.container(key="headline"):
        st.header("Another dialog: why was a word forgotten? Click one", anchor=False)
        st.markdown(plain(headline(DEMANDS["call"], head.recording, lane, lost)))
    st.caption(
        "FD-KVC is the policy of the paper that this lab checks. No model reads this dialog: "
        "scores compare the spelling of words. With a model's attention, other words may stay."
    )
    show_transcript(PAGE, head.recording, [lane], lane, lambda: None)
