"""Read again: what stays is read anew from its text, as engines do once a text has changed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import KINDS, Bools, Ints
from fdkvc.core.parameters import changed, parameter
from fdkvc.policies.base import BY_TEXT, KEPT, Available, Steps
from fdkvc.policies.wrapper import Wrapper, evicting


@dataclass(frozen=True)
class Reread(Wrapper):
    """Read what stays anew, instead of keeping its keys and values.

    Dropping or replacing text makes an engine read everything after the first change again, since
    its keys and values depend on the text before. The policy decides as before, by text alone and
    for the whole model. Where it clears results of tools, a placeholder stands for each, as long as
    something of the message before it stays; placeholders do not count in the budget.
    ``reread(fifo)`` reads the last tokens again after every turn.
    """

    key = "reread"
    label = "Read again"
    idea = (
        "What stays is read again from its text once something before it has left, instead of "
        "keeping its keys and values."
    )
    source = "engines with a prefix cache, such as llama.cpp and vLLM"
    reads_again = True

    placeholder: str = parameter(
        "[cleared]",
        "Placeholder",
        "What stands for a cleared result of a tool.",
        pattern=r"[^,=:()\x00-\x1f\x7f]{0,60}",
        form="a text of at most 60 characters without , = : ( )",
        nominal=True,
    )

    def refusal(self) -> str:
        policy = self.policy
        beyond = [look for look in policy.looks_at if look not in BY_TEXT]
        if beyond:
            return (
                f"{policy.name} looks at {beyond[0]}, but {self.key} needs one that "
                "decides by text"
            )
        # Any numbers show whether budgets differ by layer or head.
        if policy.slots(64, 2, 2) != 64:
            return f"{policy.name} does not decide for the whole model, which {self.key} needs"
        return ""

    @property
    def title(self) -> str:
        title = self.policy.title
        words = title.removesuffix(KEPT) if title.endswith(KEPT) else f"{title}, read again"
        return ", ".join([words, *changed(self)])

    @property
    def steps(self) -> Steps:
        equation = (
            r"i > \min \{ j \text{ evicted} \} \;\Rightarrow\; \text{read } i \text{ again}"
        )
        return evicting(self.policy.steps, equation, "keys and values follow from what stays")

    def without_effect(self, available: Available) -> tuple[str, ...]:
        sentences = super().without_effect(available)
        if changed(self) and not self.clears_results:
            sentences += (
                f"{self.policy.name} clears no results, so no placeholder is written.",
            )
        return sentences


def standing_placeholders(cached: Bools, born: Ints, kinds: Ints) -> Iterator[int]:
    """Yield the first token of each cleared result that a placeholder stands for.

    The arrays (N,) say of each token whether it is cached, its turn, and its kind. A placeholder
    stands for a result if nothing of it is cached, but something of the message before it.
    """
    is_result = kinds == KINDS.index("result")
    messages = np.flatnonzero(~is_result)
    # Held tokens of each turn, in results and outside of them.
    messages_held = np.bincount(
        born[~is_result & cached], minlength=int(born.max(initial=0)) + 1
    )
    results_held = np.bincount(born[is_result & cached], minlength=len(messages_held))
    turns, firsts = np.unique(born[is_result], return_index=True)
    for turn, token in zip(turns, np.flatnonzero(is_result)[firsts].tolist(), strict=True):
        # The last token of the message before.
        previous = int(np.searchsorted(messages, token)) - 1
        if (
            not results_held[turn]
            and previous >= 0
            and messages_held[born[messages[previous]]]
        ):
            yield token
