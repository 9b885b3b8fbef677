"""Numbers that a person may choose: each with its valid range, the paper's range, and its words.

A frozen dataclass declares its fields with `parameter`; what stands by itself is a `Field`.
Controls, checks, links, options, sweeps and help texts are made from that one declaration.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Collection, Mapping
from html import unescape
from typing import Any

from fdkvc.limits import MAX_LINK_CHARACTERS


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What is known of one numeric or choice field.

    Attributes
    ----------
    label : str
        A short name in words.
    help : str
        One line that says what the number does.
    symbol : str
        The paper's symbol, in LaTeX; empty where there is none.
    low, high : float
        The valid range, both ends included unless `open_low` or `open_high`.
    paper : tuple of two floats, optional
        The range the paper explored (its hyperparameter table).
    choices : collection
        What is allowed, for a field that is a choice and not a number; a mapping also says how
        people see each, in words or by something that has a label.
    rule : str
        The eviction rule whose threshold this is, if it is one.
    by_row : bool
        Whether it enters into arithmetic alone, so that the rows of a batch may each have their
        own value; see `fdkvc.policies.by_row`.
    nominal : bool
        Whether it only names one of many, as a seed does: no value is nearer to it than another.
    pattern, form : str
        Of a text: the regular expression that it matches, and what that means in words.
    """

    label: str
    help: str
    symbol: str = ""
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    paper: tuple[float, float] | None = None
    choices: Collection[Any] = ()
    rule: str = ""
    by_row: bool = False
    nominal: bool = False
    pattern: str = ""
    form: str = ""

    @property
    def letters(self) -> str:
        r"""Its symbol in letters, which are read aloud where a formula would be spelled.

        Examples
        --------
        >>> [Parameter("", "", symbol).letters for symbol in (r"\gamma", r"\alpha_0", "w_c")]
        ['γ', 'α₀', 'w_c']
        """
        letters = unescape(re.sub(r"\\([a-z]+)", r"&\1;", self.symbol))
        return re.sub(r"_(\d)", lambda found: chr(ord("₀") + int(found[1])), letters)

    def allowed(self, kind: type = float) -> str:
        """Say the valid range in words.

        Examples
        --------
        >>> Parameter("decay", "", low=0, high=1, open_low=True, open_high=True).allowed()
        'a number above 0 and below 1'
        >>> Parameter("seed", "", low=0, high=2**31).allowed(int)
        'a whole number from 0 to 2147483648'
        """
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.pattern:
            return self.form
        noun = "a whole number" if kind is int else "a number"
        lowest, highest = written(self.low), written(self.high)
        low = f"{'above' if self.open_low else 'from'} {lowest}"
        high = f"{'below' if self.open_high else 'at most'} {highest}"
        if math.isinf(self.high):
            return f"{noun} {low}" if self.open_low else f"{noun} of at least {lowest}"
        if self.open_low or self.open_high:
            return f"{noun} {low} and {high}"
        return f"{noun} from {lowest} to {highest}"

    def accepts(self, value: object, kind: type) -> bool:
        """Whether `value` is of the kind and in the valid range."""
        if self.choices:
            return value in self.choices
        if self.pattern:
            return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None
        whole_or_real = numbers.Integral if kind is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, whole_or_real):
            return False
        try:
            value = float(value)
        except OverflowError:  # a whole number larger than any float
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)


def written(value: float) -> str:
    """Write a value of a parameter, a whole one in full.

    Examples
    --------
    >>> written(0.88), written(2**31)
    ('0.88', '2147483648')
    """
    return f"{value:.0f}" if float(value).is_integer() else f"{value:g}"


@dataclasses.dataclass(frozen=True)
class Field(Parameter):
    """A parameter with a name and a default: in a control, in a link and as an option.

    Attributes
    ----------
    name : str
        Its name in a link and as an option.
    default : int, float, str, tuple of str or None
        Also says its type: several of its choices, if it is a tuple; None means an optional whole
        number.
    of : str
        The policy whose hyperparameter it is, if it is one.
    read : function, optional
        Reads the name of a policy, which is in a link without spaces; "" is none.
    chosen : bool
        Whether the browser's Back undoes a change of it; it passes over where one merely looks.
    follows : bool
        Whether its value goes along to every other page that has it.
    """

    name: str = ""
    default: Any = None
    of: str = ""
    read: Callable[[str], str] | None = None
    chosen: bool = True
    follows: bool = False

    @property
    def kind(self) -> type:
        """The type of its values, or of each of several."""
        return {type(None): int, tuple: str}.get(type(self.default), type(self.default))

    @property
    def labels(self) -> dict[Any, str]:
        """How people see each of its choices."""
        known = self.choices
        seen = known.items() if isinstance(known, Mapping) else zip(known, known, strict=True)
        return {key: str(getattr(each, "label", each)) for key, each in seen}

    def parse(self, text: str) -> Any:
        """Read the value from a link.

        Raises
        ------
        ValueError
            In a sentence that names the value and what is allowed.

        Examples
        --------
        >>> BUDGET.parse("40")
        40
        >>> Field("Sides", "", name="sides", default=(), choices=("near", "far")).parse("far")
        ['far']
        """
        if text == "" and self.default in (None, "", ()):
            return self.default
        if len(text) > MAX_LINK_CHARACTERS:
            raise ValueError(
                f"{self.label} has {len(text):,} characters, but may have "
                f"{MAX_LINK_CHARACTERS:,} at most"
            )
        if isinstance(self.default, tuple):
            return list(dict.fromkeys(map(self._parse_one, split_list(text))))
        return self._parse_one(text)

    def _parse_one(self, text: str) -> Any:
        if self.read is not None:
            return self.read(text)
        return self.check(text if self.kind is str else read_number(text, self.kind))

    def written(self, value: Any) -> str:
        """Return a value as it stands in a link."""
        if isinstance(value, list | tuple):
            return ",".join(map(self.written, value))
        text = "" if value is None else str(value)
        return text.replace(", ", ",").replace(" ", ":") if self.read else text

    def check(self, value: Any, called: str = "") -> Any:
        """Return a value if it is allowed; else raise a ValueError in a clear sentence.

        What it is `called` there is its label by default.
        """
        if value is None and self.default is not None:
            raise ValueError(f"{called or self.label} is empty")
        free_text = self.kind is str and not self.choices and not self.pattern
        if value is not None and not free_text:
            check_parameter(called or self.label, self, value, self.kind)
        return value


def split_list(text: str) -> list[str]:
    """Split a list at its commas, but for those in parentheses.

    Examples
    --------
    >>> split_list("fifo,recall(h2o,tier=1)")
    ['fifo', 'recall(h2o,tier=1)']
    """
    parts, start, depth = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
        depth += (letter == "(") - (letter == ")")
    return [*parts, text[start:]]


def read_number(text: str, kind: type = float) -> int | float | str:
    """Read a number; a text that is none stays one, for the checks of its range to name.

    It is of ASCII digits, with a sign, a point or an exponent: Python's own readers take the digits
    of every script, and underscores between them.

    Parameters
    ----------
    text : str
    kind : type
        `int` or `float`.

    Examples
    --------
    >>> read_number("1e3"), read_number("12", int), read_number("1_000", int)
    (1000.0, 12, '1_000')
    """
    try:
        return kind(text) if _NUMBER.fullmatch(text) else text
    except ValueError:  # a whole number with a point, or of more digits than Python reads
        return text


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


DIALOGS = Field(
    "Dialogs a scenario",
    "How many of each scenario; more make the intervals narrower.",
    name="dialogs",
    default=600,
    low=1,
    high=100_000,
)
SEED = Field(
    "Seed", "The same seed gives the same numbers.", name="seed", default=0, low=0, high=2**31
)
BUDGET = Field(
    "Budget",
    "How many entries the cache may hold after a turn.",
    name="budget",
    default=56,
    low=1,
    high=8192,
)
WORKERS = Field(
    "Workers", "How many processes share the dialogs of a run.", name="workers", low=1, high=256
)
"""What every run is asked for. The ranges are the command line's; a page narrows some of them."""


def parameter(default: float | int | str, label: str, help: str, **facts: Any) -> Any:
    """Declare a dataclass field with a default and the facts of a `Parameter`."""
    described = Parameter(label=label, help=help, **facts)
    return dataclasses.field(default=default, metadata={"parameter": described})


def share(default: float, label: str, help: str, **facts: Any) -> Any:
    """Declare a share, from 0 to 1, that each row of a batch may have for itself."""
    return parameter(default, label, help, low=0, high=1, by_row=True, **facts)


def parameters_of(owner: Any) -> Mapping[str, Parameter]:
    """Return the declared parameters of a dataclass or of an instance, in order, by field name."""
    return {
        field.name: field.metadata["parameter"]
        for field in dataclasses.fields(owner)
        if "parameter" in field.metadata
    }


def defaults_of(owner: Any) -> Mapping[str, Any]:
    """Return the default of each declared parameter, by field name."""
    named = parameters_of(owner)
    return {field.name: field.default for field in dataclasses.fields(owner) if field.name in named}


def fields_of(owner: Any, of: str = "") -> list[Field]:
    """Return the parameters of a dataclass with their defaults, or of an instance with its values.

    Parameters
    ----------
    owner : dataclass or instance of one
    of : str
        See `Field`.
    """
    return [
        Field(**vars(known), name=name, default=getattr(owner, name), of=of)
        for name, known in parameters_of(owner).items()
    ]


class Checked:
    """Mixin for a frozen dataclass whose parameters are checked when it is made."""

    def __post_init__(self) -> None:
        """Check every declared parameter, and make its number a plain Python one.

        Raises
        ------
        ValueError
            With one sentence that names the field, the value and what is allowed.
        """
        defaults = defaults_of(self)
        for name, known in parameters_of(self).items():
            value, kind = getattr(self, name), type(defaults[name])
            check_parameter(name, known, value, kind)
            # A NumPy number would bring its own precision into the arrays.
            object.__setattr__(self, name, kind(value))


def check_parameter(name: str, known: Parameter, value: object, kind: type) -> None:
    """Raise a ValueError that names the value and what is allowed, unless it is allowed."""
    if not known.accepts(value, kind):
        raise ValueError(f"{name} is {value!r}, but must be {known.allowed(kind)}")


def check_count(name: str, value: object, low: int = 1) -> None:
    """Raise a ValueError unless `value` is a whole number of at least `low`.

    Examples
    --------
    >>> check_count("budget", 0)
    Traceback (most recent call last):
    ValueError: budget is 0, but must be a whole number of at least 1
    """
    check_parameter(name, Parameter(name, "", low=low), value, int)
