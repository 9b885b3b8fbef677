"""Messages: whole messages stay or go, as in frameworks that cut a conversation to fit."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Ints, Observation
from fdkvc.core.cache import Cache, Pages, newest, runs
from fdkvc.core.parameters import changed, parameter
from fdkvc.policies.base import KEPT, Available, Looks, Steps, within
from fdkvc.policies.wrapper import Paging, evicting

PROMPT_STAYS = r"i \text{ in the system prompt} \;\Rightarrow\; \text{keep}"


@dataclass(frozen=True)
class Messages(Paging):
    """Keep or drop whole messages, the best by the mean score of their tokens.

    A message is a turn of the dialog, without a model's own system prompt that is read with it.
    Messages leave, the lowest score first, until the others fit. So ``messages(fifo)`` drops the
    oldest messages, as Ollama and most frameworks do. The system prompt stays if it leaves room. If
    the newest message is larger than that room, its end stays. Each part of a turn that is read in
    parts is a message.

    With ``begins=user``, a message is all from a user's message up to the next. So what stays
    begins with a user's, and a call stays with its results, as under LangChain's ``trim_messages``
    with ``start_on="human"``. By default it begins anywhere, as in Ollama; recorded runs and
    published figures name that without a setting.
    """

    key = "messages"
    label = "Whole messages"
    idea = (
        "A message stays or goes as a whole, by the mean score of its tokens under the wrapped "
        "policy; with FIFO, the oldest messages are dropped. If the newest message is larger than "
        "the budget, its end stays."
    )
    source = "Ollama and most frameworks for agents, which drop the oldest messages"

    prompt: str = parameter(
        "stays",
        "System prompt",
        "Whether the system prompt always stays, if it leaves room for anything else.",
        choices=("stays", "may leave"),
    )

    begins: str = parameter(
        "anywhere",
        "Begins",
        "With user, what stays begins with a user's message, as services ask for: that and all up "
        "to the next user's message, calls and results among it, leave together, as under "
        'LangChain\'s trim_messages with start_on="human". With anywhere, the oldest messages '
        "leave one by one, as in Ollama.",
        choices=("anywhere", "user"),
    )

    @property
    def also_looks_at(self) -> Looks:
        looks: Looks = ("positions",)
        if self.prompt == "stays":
            looks = (*looks, "speakers")
        return (*looks, "kinds") if self.begins == "user" else looks

    @property
    def title(self) -> str:
        """The users' words for the plain use, and the wrapped policy's title otherwise."""
        if self.policy.name == "fifo":
            words = ", ".join(["Drop oldest messages", *changed(self)])
            return words.replace(", begins=user", " up to a user's") + KEPT
        return super().title

    @property
    def steps(self) -> Steps:
        prompt_rule = rf"{PROMPT_STAYS} \\ " if self.prompt == "stays" else ""
        equation = prompt_rule + (
            r"s_i \leftarrow \operatorname{mean}_{j \in m(i)} s_j, \quad m(i) = \text{message of } "
            r"i \\ \text{whole messages leave, until the others fit}"
        )
        return evicting(
            self.policy.steps, equation, "if the newest message is too large, its end stays"
        )

    def without_effect(self, available: Available) -> tuple[str, ...]:
        sentences = super().without_effect(available)
        if self.prompt == "stays" and "prompt" not in available.speakers:
            note = (
                "No words of the system prompt are marked here, so messages protects "
                "none of them."
            )
            sentences += (note,)
        if self.begins == "user" and "user" not in available.kinds:
            sentences += ("No words of a user are marked here, so all messages are one.",)
        return sentences

    @property
    def page_size(self) -> int:
        return 0

    def pages(self, cache: Cache, turn: Observation) -> Pages:
        def pages() -> Pages:
            # Two labels per message: its prompt, if any, is a message of its own.
            number = turn.born(cache.token)
            if self.begins == "user":
                number = turns_so_far(turn.is_kind(cache.token, "user"), number)
            label = 2 * number + self._prompt(cache, turn)
            return Pages(runs(cache, label), 0)

        return turn.remembered("messages", cache.token, pages)

    def _prompt(self, cache: Cache, turn: Observation) -> Bools:
        """Mark the system prompt (B, C), if it stays."""
        if self.prompt == "stays":
            return turn.spoken_by(cache.token, "prompt")
        return np.zeros(cache.token.shape, np.bool_)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect what always stays, and messages of which the wrapped policy protects entries."""
        pages = self.pages(cache, turn)
        stays = always_stays(cache, pages, self._prompt(cache, turn), budget)
        return within(
            budget,
            lambda places: (
                stays | pages.of_whole(self.policy.protects(cache, turn, places), cache)
            ),
        )


def always_stays(cache: Cache, pages: Pages, prompt: Bools, budget: int) -> Bools:
    """Mark the prompt if it leaves room, and the newest message's end if that exceeds it (B, C)."""
    # 1. The whole prompt if it leaves room; otherwise it is a message like any other.
    size = prompt.sum(axis=1, keepdims=True)
    stays = prompt & (size < budget)
    # 2. Without its end, a newest message that is too large would leave as a whole.
    room = budget - stays.sum(axis=1, keepdims=True)
    number = np.where(cache.present, pages.page, -1)
    last = cache.present & (number == number.max(axis=1, keepdims=True, initial=-1))
    exceeds = last.sum(axis=1, keepdims=True) > room
    return np.asarray(stays | (last & exceeds & newest(cache, room)))


def turns_so_far(marked: Bools, born: Ints) -> Ints:
    """Count the turns with marked entries up to each entry (B, C)."""
    # A marked entry of a later turn than all marked ones before it begins the next one.
    turns = np.where(marked, born, -1)
    latest = np.maximum.accumulate(turns, axis=1)
    earlier = np.pad(latest[:, :-1], [(0, 0), (1, 0)], constant_values=-1)
    return np.cumsum(turns > earlier, axis=1)
