"""The sidebar of the Answers page: the conversation, the policies and the budget."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from fdkvc.conversations.page import file_choice as dialogs
from fdkvc.conversations.page.files import SHIPPED
from fdkvc.core.attention import KINDS, SPEAKERS
from fdkvc.core.limits import MAX_ANSWERING_POLICIES, MAX_TURNS, MAX_TYPED_CHARACTERS
from fdkvc.core.parameters import Field
from fdkvc.core.transcripts import Transcript
from fdkvc.models.cache_answers import RecordedAnswer, shipped_answer
from fdkvc.models.numpy.head_eviction import DECIDES
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.page.conversation import FULL, Conversation, steps_of
from fdkvc.models.page.loading import MODEL, usable_models, why_missing
from fdkvc.policies import POLICIES as ALL_POLICIES
from fdkvc.policies import Policy
from fdkvc.policies.base import Available
from fdkvc.ui import fields
from fdkvc.ui.fields import held, hold, problems
from fdkvc.ui.frame import Page
from fdkvc.ui.lanes import POLICIES as LANES
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import BUDGET_HERE, read_name
from fdkvc.ui.variants import choose_policies, warn_no_effect

NOTHING, EXAMPLE = "nothing", "birthday"
EVERYTHING = "full"
"""The policy that evicts nothing."""


BEGINNING = replace(
    dialogs.FILE,
    label="Begin with",
    help="The dialog that the model reads before it answers. The bundled model was trained on "
    "services like those of the evening in San Jose. It has never seen those of the other "
    "examples, and makes none of their calls.",
    default="evening",
    choices={
        NOTHING: "Nothing: start a new chat",
        dialogs.OWN: "A file of my own …",
        "evening": SHIPPED["evening"],
        # All but the rental, which is too long for a chat's memory.
        **{key: label for key, label in SHIPPED.items() if key != "rental"},
        "hotel": "Example: breakfast at a hotel, recorded with Qwen2.5-Coder",
    },
)
ANSWERED = Field(
    "The model answers in",
    "The model reads all turns before this one, as they are in the dialog.",
    name="turn",
    low=0,
    high=MAX_TURNS,
)
BUDGET = replace(
    BUDGET_HERE,
    help="How many entries each KV head may hold after a turn.",
    default=96,
    follows=False,
)
POLICIES = replace(
    LANES, choices=ALL_POLICIES, default=("fifo", "h2o", "fd-kvc", "keydiff"), follows=False
)
MESSAGES = Field("Your messages", "One line each.", name="said", default="")
STOPS = Field(
    "Lengths",
    name="stops",
    default="",
    pattern=r"(\d{1,4}:[1-9]\d{0,4}(,(?!$)|$))*",
    form="answers and their tokens, such as 0:30,2:256",
)
WHOSE = Field(
    "Cache",
    name="look",
    default="",
    read=lambda text: text if text == FULL else read_name(text),
)
WORD = Field("Word", name="word", low=0, high=10_000, chosen=False)
SECTION = Field(
    "Section",
    name="section",
    default="back",
    choices={"back": "Restore evicted words", "why": "Why this answer"},
)
_READ = (BEGINNING, dialogs.DIGEST, dialogs.TOOLS, dialogs.DIALOG, ANSWERED)
FIELDS = (MODEL, *_READ, MESSAGES, STOPS, POLICIES, BUDGET, DECIDES, WHOSE, WORD, SECTION)
"""Every field of the page."""

PRETRAINED = {BEGINNING.name: EXAMPLE, BUDGET.name: 64, STOPS.name: "0:24"}
"""Defaults of fields that differ for all models but the bundled one."""

RECORDED_UNDER = {EXAMPLE: "smollm2", "hotel": MODEL.default}
"""The chosen model with which each recorded example is shown."""

OTHER_MODEL = (
    "Choose a model of yours for that, such as Ollama's qwen2.5-coder:0.5b. Once you change, say, "
    "the budget, the bundled model answers instead."
)

OTHER_CHATS = (
    "The bundled model was made for the example dialogs only. For your own chat, choose SmolLM2 "
    "under “Model”, or a model of this machine."
)

STARTERS = {
    "bundled": (
        "I am looking for a restaurant in San Jose.",
        "I need a train to Los Angeles.",
    ),
    EXAMPLE: ("What is the name of my sister?", "Write a birthday card for my sister."),
    NOTHING: ("My sister Rosalind turns thirty on Saturday. What shall we bake?",),
}
"""Messages to click: for the bundled model, and for others by the dialog that they begin with."""


def fields_of(page: str, link: Mapping[str, str]) -> tuple[Field, ...]:
    """Return every field, with its default for the model of a link or, without one, of the page."""
    model = link.get(MODEL.name, MODEL.default) if link else held(page, MODEL)
    if model == MODEL.default or model not in MODEL.choices:
        return FIELDS
    return tuple(
        replace(field, default=PRETRAINED.get(field.name, field.default)) for field in FIELDS
    )


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the page; return a sentence for each part that is not allowed."""
    wrong = fields.adopt_link(page, fields_of(page, link), link)
    if len(held(page, MESSAGES)) > MAX_TYPED_CHARACTERS:
        wrong.append(
            f"The messages in this link have over {MAX_TYPED_CHARACTERS:,} characters: they are "
            "ignored."
        )
        hold(page, MESSAGES, "")
    return wrong


def choose_model(page: str) -> str:
    """Choose the model. Another has its own defaults, unless something is chosen or written."""
    last_fields = _model_fields(page)

    def use_defaults() -> None:
        if all(held(page, field) == field.default for field in (MESSAGES, *last_fields)):
            fields.reset(page, _model_fields(page))

    usable, reasons = usable_models()
    name = str(fields.choice(page, usable, on_change=use_defaults))
    if reasons:
        lines = (f"{model}: {reason}" for model, reason in reasons.items())
        st.caption(plain("Not offered: " + "; ".join(lines) + "."))
    return name


def _model_fields(page: str) -> list[Field]:
    """Return the fields whose defaults are those of the chosen model."""
    return [field for field in fields_of(page, {}) if field.name in PRETRAINED]


def starters_of(page: str) -> tuple[str, ...]:
    """Return the messages that can be clicked to begin a chat."""
    name = "bundled" if held(page, MODEL) == "bundled" else held(page, BEGINNING)
    return STARTERS.get(name, ())


def why_recorded(name: str) -> str:
    """Return why a recording cannot run live with the chosen model, "" if it can."""
    return OTHER_MODEL if name == MODEL.default else why_missing(name)


def recording_of(page: str, conversation: Conversation) -> RecordedAnswer | None:
    """Return the recording of a conversation, if there is one and the user has not run it live."""
    example = held(page, BEGINNING)
    is_live = st.session_state.get(f"{page}/live")
    if is_live or RECORDED_UNDER.get(example) != held(page, MODEL):
        return None
    recorded = shipped_answer(example)
    if (held(page, STOPS), conversation.messages) != (recorded.stops, ()):
        return None
    limits = conversation.turn, conversation.budget, conversation.decides
    if limits != (recorded.turn, recorded.budget, DECIDES.default):
        return None
    names = {policy.name for policy in conversation.policies}
    return recorded if names and names <= recorded.answers.keys() else None


def choose_cache(page: str, titles: Mapping[str, str], start: str = "") -> str:
    """Choose a cache by its title, at first `start` or the first one; return its name."""
    cache_field = replace(WHOSE, default=start or next(iter(titles)), choices=titles)
    return str(fields.choice(page, cache_field, width="content"))


def choose_conversation(opened_page: Page) -> Conversation | None:
    """Show the controls; return the conversation, or None if there is no file yet."""
    page = opened_page.name
    link = opened_page.link
    page_fields = {field.name: field for field in fields_of(page, {})}
    policies = _choose_policies(page, page_fields[POLICIES.name])
    transcript = None
    file_key = dialog = ""
    turn = 0
    file_name = fields.choice(
        page, page_fields[BEGINNING.name], on_change=partial(_leave_bundled, page)
    )
    if file_name != NOTHING:
        file = dialogs.chosen_file(opened_page, (dialogs.DIALOG,))
        if file is None:
            return None
        file = dialogs.choose_tools(page, file)
        dialogs.warn_skipped(file)
        if not file.transcripts:  # a coding agent's session may be too long as a whole
            return None
        transcript = file.transcripts[dialogs.choose_transcript(page, file)]
        file_key, dialog = file.key, transcript.name
        turn = _choose_turn(page, transcript, link)
    budget = fields.number(page, page_fields[BUDGET.name])
    decides = fields.choice(page, DECIDES)
    messages = tuple(line for line in held(page, MESSAGES).split("\n") if line.strip())
    # The lengths of answers belong to a conversation: another one starts with the default.
    beginning = held(page, MODEL), file_key, dialog, turn
    if fields.is_new(f"{page}/begun", beginning) and not link:
        hold(page, STOPS, page_fields[STOPS.name].default)
    return Conversation(
        model=held(page, MODEL),
        file=file_key,
        dialog=dialog,
        turn=turn,
        policies=policies,
        budget=budget,
        decides=decides,
        messages=messages,
        stops=_stops(page, len(messages)),
        transcript=transcript,
    )


def _leave_bundled(page: str) -> None:
    """Read a file of one's own with SmolLM2 where it is installed, instead of the bundled model."""
    is_bundled = held(page, MODEL) == MODEL.default
    if is_bundled and held(page, BEGINNING) == dialogs.OWN and not why_missing("smollm2"):
        hold(page, MODEL, "smollm2")
        if held(page, BUDGET) == BUDGET.default:
            hold(page, BUDGET, PRETRAINED[BUDGET.name])


def _choose_turn(page: str, transcript: Transcript, link: Mapping[str, str]) -> int:
    """Choose the turn to answer: the last message, if it is the user's, which has no answer yet.

    By default else, the call whose arguments were mentioned longest ago.
    """
    calls = {call.turn: call for call in transcript.calls}
    labels = {}
    for index, speaker in enumerate(transcript.spoken_by):
        if index in calls:
            labels[index] = f"turn {index}: {calls[index].method}"
        elif speaker != "user":  # whom the model does not answer as
            labels[index] = f"turn {index}"
    labels.pop(0, None)  # nothing comes before it
    end = len(transcript.turns)
    if not labels or transcript.spoken_by[-1] == "user":
        labels[end] = "after the last turn"

    def oldest(turn: int) -> tuple[int, int]:
        """Rank a call: with two arguments or more first, then by the age of the oldest."""
        arguments = calls[turn].arguments
        mentions = [argument.mention.turn for argument in arguments if argument.mention]
        return min(len(arguments), 2), turn - min(mentions, default=turn)

    start = max(filter(calls.__contains__, labels), key=oldest, default=[*labels][-1])
    if end in labels:
        start = end
    # A turn belongs to a dialog: another one starts with the default.
    if fields.is_new(f"{page}/turn of", transcript) and not link:
        hold(page, ANSWERED, start)
    answered = held(page, ANSWERED)
    if answered not in labels:
        if link.get(ANSWERED.name) == str(answered):
            error = f"no answer begins in turn {answered} of this dialog"
            problems(fields.link_error(ANSWERED, error, start))
        hold(page, ANSWERED, start)
    return int(fields.choice(page, replace(ANSWERED, default=start, choices=labels)))


def _choose_policies(page: str, field: Field) -> tuple[Policy, ...]:
    policies = []
    for policy in choose_policies(page, field, MAX_ANSWERING_POLICIES):
        if "future" in policy.looks_at:
            problems(
                f"{policy.title} is left out: it needs the future of the dialog, which the model "
                "has not written yet."
            )
        elif policy.reads_again:
            problems(
                f"{policy.title} is left out: it keeps no entries, which this page follows, but "
                "reads the text again. The commands answers and live measure it."
            )
        elif policy.name != EVERYTHING:  # the full cache is always shown
            policies.append(policy)
    return tuple(policies)


def warn_of(page: str, policies: Sequence[Policy], model: LanguageModel) -> None:
    """Warn of a model for examples alone, and of policies whose settings have no effect with it."""
    if held(page, MODEL) == MODEL.default and held(page, BEGINNING) in (NOTHING, dialogs.OWN):
        st.warning(OTHER_CHATS)
    shape = model.decoder.shape
    heads = {"heads": shape.heads, "layers": shape.layers}
    warn_no_effect(policies, Available(SPEAKERS, words=True, kinds=KINDS, **heads))


def _stops(page: str, messages: int) -> tuple[tuple[int, int], ...]:
    """Return the lengths of answers, up to the answer to the last of so many messages."""
    stops = []
    for pair in filter(None, held(page, STOPS).split(",")):
        answer, steps = map(int, pair.split(":"))
        if answer <= messages:
            stops.append((answer, steps))
    return tuple(stops)


def _written(stops: Iterable[tuple[int, int]]) -> str:
    # The last length that was set of an answer counts.
    return ",".join(f"{answer}:{steps}" for answer, steps in sorted(dict(stops).items()))


def limit_answer(page: str, conversation: Conversation, extra: int = 0) -> None:
    """End the last answer of a conversation where it is now, or after `extra` more tokens."""
    last = len(conversation.messages), max(steps_of(conversation), 1) + extra
    hold(page, STOPS, _written((*conversation.stops, last)))


def keep_messages(page: str, messages: Sequence[str], new: str = "") -> None:
    """Keep the first messages of the chat, and send a new one, if any."""
    sent = [*messages, " ".join(new.split())] if new else messages
    stops = _written(_stops(page, len(messages)))
    fields.hold_and_rerun(page, [(MESSAGES, "\n".join(sent)), (STOPS, stops)])
