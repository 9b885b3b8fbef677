"""Messages: whole messages stay or go, as in frameworks that cut a conversation to fit."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Observation
from fdkvc.core.cache import Cache, Pages, newest, runs
from fdkvc.core.parameters import changed, parameter
from fdkvc.policies.base import Available, Look, Step, within
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

    @property
    def also_looks_at(self) -> tuple[Look, ...]:
        return ("positions", "speakers") if self.prompt == "stays" else ("positions",)

    @property
    def title(self) -> str:
        """The users' words for the plain use, and the wrapped policy's title otherwise."""
        if self.policy.name == "fifo":
            return ", ".join(["Drop oldest messages", *changed(self)])
        return super().title

    @property
    def steps(self) -> tuple[Step, ...]:
        kept = rf"{PROMPT_STAYS} \\ " if self.prompt == "stays" else ""
        equation = kept + (
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
                "No words of the system prompt are marked here, so messages protects none of them."
            )
            sentences += (note,)
        return sentences

    @property
    def page_size(self) -> int:
        return 0

    def pages(self, cache: Cache, turn: Observation) -> Pages:
        def pages() -> Pages:
            # Two labels per turn: its prompt, if any, is a message of its own.
            label = 2 * turn.born(cache.token) + self._prompt(cache, turn)
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
            lambda places: stays | pages.of_whole(self.policy.protects(cache, turn, places), cache),
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
