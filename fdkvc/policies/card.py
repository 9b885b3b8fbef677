"""What is displayed of a policy: its card, and the steps of its turn. It decides nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from fdkvc.parameters import changed

StepKind = Literal["value", "change", "rate", "protect", "evict", "attention"]
"""What a step does, by which it is narrated; see `Step`."""


@dataclass(frozen=True)
class Step:
    """One step of a policy's turn, as readers see it."""

    name: str
    equation: str
    """LaTeX."""
    source: str
    """Where the equation is published."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Recorded quantities, before and after: channels, row states, terms, or what `update`
    records."""
    kind: StepKind = "value"
    """``value`` computes what it writes. ``change`` turns the first quantity it reads into the
    first it writes, entry by entry; a quantity that it both reads and writes starts as the last
    turn left it. ``rate`` sets row states, in the order of their dependence. ``protect`` marks
    entries that must stay. ``evict`` removes and inserts; with a threshold it reads the thresholded
    score and the threshold, in this order. ``attention`` bends the first quantity it reads into the
    first it writes."""
    includes_new: bool = False
    """Whether the turn's own tokens take part in a ``change``."""

    def channel(self, channels: Sequence[str]) -> str | None:
        """Return the channel that a ``change`` changes: what it writes begins with its name."""
        return next((name for name in channels if self.writes[0].startswith(name)), None)


EVICTION = Step(
    "Eviction and insertion",
    r"\begin{gathered} \text{insert the new, keep the top } B \\ "
    r"\text{by } s_i,\text{ ties to the older} \end{gathered}",
    "the budget's rule, the same for every policy",
    writes=("score",),
    kind="evict",
)
"""The last step of a policy that leaves eviction to the budget alone."""


def changing(name: str, channel: str, equation: str, source: str) -> Step:
    """Return a step that changes a channel of old and new entries."""
    return Step(name, equation, source, (channel,), (channel,), "change", includes_new=True)


def protecting(equation: str, source: str, name: str = "Protection") -> Step:
    """Return a step that protects entries."""
    return Step(name, equation, source, writes=("protected",), kind="protect")


SUMMED_ATTENTION = changing(
    "Cumulative attention",
    "cumulative",
    r"\begin{gathered} c_i \leftarrow c_i + \sum_q \operatorname{softmax}"
    r"(q^\top k_i / \sqrt d) \\ q = \bar q_t \text{ or each query} \end{gathered}",
    "over old and new entries; a new entry starts at 0",
)
"""The step of a policy that sums each turn's attention, new tokens included."""

RECENT_WINDOW = protecting(
    r"i \text{ among the newest } \lfloor r B \rfloor \;\Rightarrow\; \text{keep}", "recent window"
)
"""The step of a policy that protects a share of the budget for the newest entries."""

SINKS_STAY = protecting(r"i < n_{\text{sinks}} \;\Rightarrow\; \text{keep}", "attention sinks")
"""The step of a policy that protects the dialog's first tokens."""

QUANTITIES = {
    "cumulative": "cumulative attention",
    "moves": "number of moves between cache and second tier",
}
"""Display names of quantities that several policies have."""


@dataclass(frozen=True)
class Available:
    """What the dialogs that a policy runs on provide."""

    speakers: tuple[str, ...] = ()
    """Whose words are marked, of `fdkvc.attention.SPEAKERS`."""
    words: bool = False
    """Whether words of tokens are known."""
    heads: int = 1
    layers: int = 1
    """How many decide separately."""


class Card:
    """A policy as readers see it.

    Class attributes
    ----------------
    label : str
        Its name on screen.
    idea : str
        What it does in a sentence or two.
    source : str
        The paper that defines it.
    """

    label: ClassVar[str]
    idea: ClassVar[str]
    source: ClassVar[str]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of its turn."""
        return ()

    @property
    def quantity_names(self) -> Mapping[str, str]:
        """Display names of quantities whose name is unclear, beside `QUANTITIES`."""
        return {}

    @property
    def title(self) -> str:
        """The label, and every hyperparameter that is not at its default.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc", gamma=0.8, w_c=0.3).title
        'FD-KVC γ=0.8 w_c=0.3'
        """
        return " ".join([self.label, *changed(self, letters=True)])

    def quantity_name(self, quantity: str) -> str:
        """Return the display name of a channel, term, row state or recorded quantity.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc").quantity_name("cumulative")
        'cumulative attention'
        """
        names = {**QUANTITIES, **self.quantity_names}
        return names.get(quantity, quantity.replace("_", " "))

    def without_effect(self, available: Available) -> tuple[str, ...]:
        """Return a sentence for each setting that has no effect on such dialogs."""
        return ()
