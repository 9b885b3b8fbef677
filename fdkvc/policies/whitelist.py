"""Whitelist: turns, a speaker or words are never evicted, within the budget."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import SPEAKER_LABELS, Bools, Ints, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.limits import MAX_TURNS
from fdkvc.core.parameters import changed, parameter, share
from fdkvc.policies.base import Available, Looks, Steps, part, protecting
from fdkvc.policies.wrapper import Protecting, before_eviction

NOBODY = "nobody"

LISTED = protecting(
    r"\begin{gathered} t_i < n \;\text{ or }\; t_i = t_0 \;\text{ or }\; "
    r"\text{speaker}_i = p \;\text{ or }\; \text{word}_i \in M \;\Rightarrow\; i \in W \\ "
    r"\text{the oldest } \lfloor m B \rfloor \text{ of } W \;\Rightarrow\; \text{keep} "
    r"\end{gathered}",
    "the first n turns, turn t₀, the words of one speaker, and the marked words M",
    "Whitelist",
)


@dataclass(frozen=True)
class Whitelist(Protecting):
    """Never evict the dialog's first turns or one other, one speaker's words, or marked words.

    After Chen et al. 2025, *The Pitfalls of KV Cache Compression*, who find that eviction drops
    instructions and protect them with a whitelist. Listed entries count within the budget, up to a
    share of it; beyond that share the oldest stay, because instructions come first. A threshold of
    the wrapped policy evicts none of them.
    """

    key = "whitelist"
    label = "Whitelist"
    idea = (
        "The dialog's first turns or one other turn, one speaker's words, or marked words are "
        "never evicted, up to a share of the budget; the wrapped policy decides on the rest."
    )
    source = "after Chen et al. 2025, The Pitfalls of KV Cache Compression"

    first: int = parameter(
        1,
        "First turns",
        "Number of first turns that are never evicted.",
        low=0,
        high=MAX_TURNS,
    )
    at_turn: int = parameter(
        -1,
        "One turn",
        "One more turn that is never evicted, counted from 0; -1 is none.",
        symbol="t_0",
        low=-1,
        high=MAX_TURNS - 1,
        nominal=True,
    )
    speaker: str = parameter(
        NOBODY,
        "Speaker",
        "Whose words are never evicted in real dialogs, or the system prompt; synthetic dialogs "
        "have no speakers.",
        choices={NOBODY: NOBODY, **SPEAKER_LABELS},
    )
    most: float = share(
        0.5,
        "Largest share",
        "Largest share of the budget that the whitelist may take.",
        symbol="m",
    )
    words: str = parameter(
        "",
        "Marked words",
        "Words that are never evicted, such as san+jose; synthetic tokens have no words.",
        symbol="M",
        pattern=r"(?=.{0,300}$)(\w+(\+\w+)*)?",
        form="words of letters and digits with + between them, of 300 characters at most",
        nominal=True,
    )

    @property
    def also_looks_at(self) -> Looks:
        speakers: Looks = ("speakers",) if self.speaker != NOBODY else ()
        words: Looks = ("words",) if self.words else ()
        return ("positions", *speakers, *words)

    @property
    def title(self) -> str:
        """The wrapped policy's title and "+ prompt", if only the system prompt is listed."""
        if changed(self) == ["first=0", "speaker=prompt"]:
            return f"{self.policy.title} + prompt"
        return super().title

    @property
    def steps(self) -> Steps:
        return before_eviction(self.policy.steps, LISTED)

    def without_effect(self, available: Available) -> tuple[str, ...]:
        sentences = []
        if self.speaker not in (NOBODY, *available.speakers):
            words = f"words of the {SPEAKER_LABELS[self.speaker]}"
            sentences.append(
                f"No {words} are marked here, so whitelist protects none of them."
            )
        if self.words and not available.words:
            sentences.append("Words are unknown here, so whitelist protects none.")
        return (*super().without_effect(available), *sentences)

    def most_listed(self, budget: int) -> Ints:
        return part(budget, self.most)

    def listed(self, cache: Cache, turn: Observation) -> Bools:
        listed = np.zeros(cache.token.shape, np.bool_)
        if self.first > 0 or self.at_turn >= 0:
            born = turn.born(cache.token)
            listed = cache.present & ((born < self.first) | (born == self.at_turn))
        if self.speaker != NOBODY:
            listed |= turn.spoken_by(cache.token, self.speaker)
        if self.words:
            listed |= turn.is_word(cache.token, self.words.split("+"))
        return listed
