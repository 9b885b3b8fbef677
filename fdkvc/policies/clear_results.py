"""Clear results: old results of tools go first, then the oldest messages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import Bools, Columns, Floats, Ints, Observation
from fdkvc.core.cache import EXACT, Cache, Pages, runs
from fdkvc.core.parameters import changed, parameter
from fdkvc.policies.base import (
    EVICTION,
    KEPT,
    Available,
    Looks,
    Policy,
    Step,
    Steps,
    protecting,
)
from fdkvc.policies.messages import PROMPT_STAYS, always_stays, turns_so_far


@dataclass(frozen=True)
class ClearResults(Policy):
    """Clear results of tools once the text is too long; then drop the oldest messages.

    As Anthropic's context editing ``clear_tool_uses_20250919`` and LangChain's
    ``ClearToolUsesEdit``: once the text has more tokens than the trigger, all results but those of
    the last `keep` uses are cleared, and calls stay. If what would be cleared has fewer than
    `clear_at_least` tokens, nothing is. What still exceeds the budget leaves as whole messages, the
    oldest first, as under ``messages(fifo)``, which those services leave to others; the system
    prompt stays if it leaves room.

    The text is what is held: what was cleared does not count again. The services get the whole text
    with each request, and may count that. An assistant's message may begin with calls; if their
    inputs are cleared, these are a message of their own.
    """

    key = "clear-results"
    label = "Clear tool results"
    idea = (
        "When the text exceeds the budget, the results of all tools but the last used are cleared, "
        "and calls stay. If that is not enough, the oldest messages are dropped."
    )
    source = "Anthropic's context editing (clear_tool_uses_20250919), and LangChain's"
    quantity_names: ClassVar[Mapping[str, str]] = {"cleared": "deduction"}
    ties = EXACT
    clears_results = True
    looks_at: ClassVar[Looks] = ("positions", "speakers", "kinds")
    steps: ClassVar[Steps] = (
        Step(
            "Message",
            r"s_i = \operatorname{mean}_{j \in m(i)} j - N\,[i \text{ cleared}]",
            "m is the message of a token; N tokens so far",
            writes=("position", "cleared"),
        ),
        protecting(PROMPT_STAYS, "if it leaves room"),
        replace(
            EVICTION,
            equation=r"\begin{gathered} N > \text{trigger} \;\Rightarrow\; \text{results before "
            r"the last } k \text{ are cleared} \\ \text{whole messages leave, until the others "
            r"fit} \end{gathered}",
            source="N tokens are held or new; if the newest message is too large, its end stays",
        ),
    )

    keep: int = parameter(
        3, "Kept uses", "Last uses of tools whose results are never cleared.", low=0, high=1000
    )
    trigger: int = parameter(
        0,
        "Trigger",
        "Tokens beyond which results are cleared, at most the budget; 0 is the budget.",
        low=0,
        high=1_000_000,
    )
    clear_at_least: int = parameter(
        0, "Clear at least", "Fewer tokens than this are not cleared.", low=0, high=1_000_000
    )
    exclude_tools: str = parameter(
        "",
        "Excluded tools",
        "Tools whose results are never cleared, such as search+read_file.",
        pattern=r"(?=.{0,300}$)([\w.-]+(\+[\w.-]+)*)?",
        form="names of letters, digits, points, hyphens and underscores with + between them, of "
        "300 characters at most",
        nominal=True,
    )
    clear_tool_inputs: str = parameter(
        "no",
        "Clear tool inputs",
        "Whether the calls of cleared results go, too.",
        choices=("no", "yes"),
    )

    @property
    def title(self) -> str:
        settings = [setting for setting in changed(self) if not setting.startswith("keep=")]
        return f"{self.label} ({', '.join([f'keep {self.keep}', *settings])}){KEPT}"

    def without_effect(self, available: Available) -> tuple[str, ...]:
        if "result" not in available.kinds:
            return (
                "No results of tools are marked here, so the oldest messages are dropped.",
            )
        if self.clear_tool_inputs == "yes" and "call" not in available.kinds:
            return ("No calls are marked here, so their inputs are not cleared.",)
        return ()

    @property
    def page_size(self) -> int:
        return 0

    def pages(self, cache: Cache, turn: Observation) -> Pages:
        """Return the messages; a prompt, and what is cleared, are separate from the turn's rest."""

        def pages() -> Pages:
            # Three labels per turn: the prompt, what is cleared, and the rest.
            part = np.where(self.cleared(cache, turn), 1, 2)
            part[turn.spoken_by(cache.token, "prompt")] = 0
            return Pages(runs(cache, 3 * turn.born(cache.token) + part), 0)

        return turn.remembered("messages", cache.token, pages)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the message's position, minus the tokens so far for what is cleared.

        So a score below 0 means cleared, and cleared messages go first.
        """
        position = turn.position(cache.token).astype(np.float64)
        cleared = self.cleared(cache, turn) * (position.max(axis=1, keepdims=True) + 1)
        columns = {"position": position, "cleared": -cleared}
        return self.pages(cache, turn).mean(cache, columns)

    def cleared(self, cache: Cache, turn: Observation) -> Bools:
        """Mark what is cleared if too much is held (B, C)."""
        return turn.remembered("cleared", cache.token, lambda: self._cleared(cache, turn))

    def _cleared(self, cache: Cache, turn: Observation) -> Bools:
        # 1. Results before those of the last uses; each result is a turn, counted from 1.
        results = turn.is_kind(cache.token, "result")
        number = turns_so_far(results, turn.born(cache.token))
        old = results & (number <= number[:, -1:] - self.keep)
        excluded = np.zeros_like(old)
        if self.exclude_tools:
            excluded = turn.is_tool(cache.token, self.exclude_tools.split("+"))
        cleared = old & ~excluded
        # 2. Calls whose results all go: those after them, and before the next calls.
        if self.clear_tool_inputs == "yes":
            calls = turn.is_kind(cache.token, "call")
            uses = Pages(turns_so_far(calls, turn.born(cache.token)), 0)
            goes = uses.of_whole(cleared, cache) & ~uses.of_whole(results & ~cleared, cache)
            cleared |= calls & goes & ~excluded
        # 3. All or nothing: clearing few tokens is not worth that the rest is read again.
        clears_enough = cleared.sum(axis=1, keepdims=True) >= self.clear_at_least
        return np.asarray(cleared & clears_enough)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        prompt = turn.spoken_by(cache.token, "prompt")
        stays = always_stays(cache, self.pages(cache, turn), prompt, budget)
        # With `keep` at 0, the newest message may be a cleared result, whose end would stay.
        return stays & ~self.cleared(cache, turn)

    def room(self, budget: int, turn: Observation) -> int:
        return min(self.trigger or budget, budget)

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Return how many entries stay: once triggered, none that is cleared."""
        cleared = (cache.present & (score < 0)).sum(axis=1, keepdims=True)
        entries = cache.count[:, None]
        trigger = np.minimum(self.trigger or budgets, budgets)
        return np.where(entries > trigger, np.minimum(budgets, entries - cleared), budgets)
