"""User settings: each with its valid range, the paper's range, its label and help text.

A frozen dataclass declares its fields with `parameter`; a setting outside of one is a `Field`.
Controls, checks, links, command-line options and sweeps are made from this declaration.
"""

import dataclasses
import math
import numbers
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from html import unescape
from typing import Any

from fdkvc.core.limits import MAX_LINK_CHARACTERS, MAX_RUN_NAMES


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A numeric, choice or text setting."""

    label: str
    """Its name on screen."""
    help: str = ""
    """One line on its effect."""
    symbol: str = ""
    """The paper's symbol in LaTeX, if any."""
    low: float = -math.inf
    """The lowest valid value, itself included unless `open_low`."""
    high: float = math.inf
    """The highest valid value, itself included unless `open_high`."""
    open_low: bool = False
    """Whether `low` itself is not allowed."""
    open_high: bool = False
    """Whether `high` itself is not allowed."""
    paper: tuple[float, float] | None = None
    """The range that the paper explored (Table 7)."""
    choices: Collection[Any] = ()
    """Allowed values of a choice; a mapping also gives their labels, or objects with a label."""
    by_row: bool = False
    """Whether each row of a batch may have its own value, because only arithmetic uses it; see
    `fdkvc.policies.by_row`."""
    nominal: bool = False
    """Whether its values have no order, as those of a seed."""
    pattern: str = ""
    """The regular expression of an allowed text."""
    form: str = ""
    """The same in words."""

    @property
    def letters(self) -> str:
        r"""Its symbol as plain text, for screen readers.

        Examples
        --------
        >>> [Parameter("", "", symbol).letters for symbol in (r"\gamma", r"\alpha_0", "w_c")]
        ['γ', 'α₀', 'w_c']
        """
        letters = unescape(re.sub(r"\\([a-z]+)", r"&\1;", self.symbol))
        return re.sub(r"_(\d)", lambda digit: chr(ord("₀") + int(digit[1])), letters)

    @property
    def title(self) -> str:
        """Its label with its symbol, such as Recency decay (γ)."""
        return f"{self.label} ({self.letters})" if self.symbol else self.label

    def allowed(self, kind: type = float) -> str:
        """Describe the valid range.

        Examples
        --------
        >>> Parameter("decay", "", low=0, high=1, open_low=True, open_high=True).allowed()
        'a number above 0 and below 1'
        >>> Parameter("seed", "", low=0, high=2**31).allowed(int)
        'a whole number from 0 to 2,147,483,648'
        """
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        if self.pattern:
            return self.form
        noun = "a whole number" if kind is int else "a number"
        lowest = written(self.low)
        highest = written(self.high)
        low = f"{'above' if self.open_low else 'of at least'} {lowest}"
        high = f"{'below' if self.open_high else 'at most'} {highest}"
        if math.isinf(self.high):
            return f"{noun} {low}"
        if self.open_low or self.open_high:
            return f"{noun} {low} and {high}"
        return f"{noun} from {lowest} to {highest}"

    def accepts(self, value: object, kind: type) -> bool:
        """Whether `value` has the type and is in the valid range."""
        if self.choices:
            return value in [*self.choices]  # a list, since the value may have no hash
        if self.pattern:
            return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None
        whole_or_real = numbers.Integral if kind is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, whole_or_real):
            return False
        try:
            value = float(value)
        except OverflowError:  # a whole number larger than any float
            return False
        is_high_enough = value > self.low if self.open_low else value >= self.low
        is_low_enough = value < self.high if self.open_high else value <= self.high
        return is_high_enough and is_low_enough and math.isfinite(value)


def written(value: float | str) -> str:
    """Format a value, a whole number with all digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,g}"


@dataclasses.dataclass(frozen=True)
class Field(Parameter):
    """A parameter with a name and a default: a control, a key in links and an option."""

    name: str = ""
    """Its name in links and as an option."""
    default: Any = None
    """A value of the field's type; a tuple means several choices, None an optional whole number."""
    owner: str = ""
    """The policy whose hyperparameter it is, if any."""
    read: Callable[[str], str] | None = None
    """Parses a policy's name, which links write without spaces; "" means no policy."""
    chosen: bool = True
    """Whether the browser's Back undoes a change; false for mere navigation."""
    follows: bool = False
    """Whether every other page with this field takes over its value."""

    @property
    def kind(self) -> type:
        """The type of its value, or of one of several."""
        return {type(None): int, tuple: str}.get(type(self.default), type(self.default))

    @property
    def labels(self) -> dict[Any, str]:
        """The label of each choice."""
        choices = self.choices
        if not isinstance(choices, Mapping):
            choices = dict(zip(choices, choices, strict=True))
        return {key: str(getattr(choice, "label", choice)) for key, choice in choices.items()}

    def parse(self, text: str) -> Any:
        """Parse the value of a link; ValueError if it is not allowed.

        Examples
        --------
        >>> BUDGET.parse("40")
        40
        >>> Field("Sides", "", name="sides", default=(), choices=("near", "far")).parse("far")
        ['far']
        """
        if text == "" and self.default in (None, "", ()):
            return self.default
        check_most(f"{self.label} has", len(text), "characters", MAX_LINK_CHARACTERS)
        if isinstance(self.default, tuple):
            parts = filter(None, split_list(text))
            values = dict.fromkeys(map(self._parse_one, parts))
            return self.check_several(list(values))
        return self._parse_one(text)

    def check_several(self, values: list[Any]) -> list[Any]:
        """Return several choices; raise a ValueError if one is needed and there is none."""
        if not values and self.default:
            raise ValueError(f"{self.label} is empty: choose at least one")
        return values

    def _parse_one(self, text: str) -> Any:
        if self.read is not None:
            return self.read(text)
        return self.check(text if self.kind is str else read_number(text, self.kind))

    def written(self, value: Any) -> str:
        """Format a value for a link."""
        if isinstance(value, list | tuple):
            return ",".join(map(self.written, value))
        text = "" if value is None else str(value)
        return text.replace(", ", ",").replace(" ", ":") if self.read else text

    def check(self, value: Any, called: str = "") -> Any:
        """Return a value if it is allowed, or raise a ValueError that names it by `called`."""
        if value is None and self.default is not None:
            raise ValueError(f"{called or self.label} is empty")
        free_text = self.kind is str and not self.choices and not self.pattern
        if value is not None and not free_text:
            check_parameter(called or self.label, self, value, self.kind)
        return value


def split_list(text: str) -> list[str]:
    """Split a list at the commas outside of parentheses.

    Examples
    --------
    >>> split_list("fifo,sinks(h2o,n=4)")
    ['fifo', 'sinks(h2o,n=4)']
    """
    parts = []
    start = 0
    depth = 0
    for index, letter in enumerate(text):
        # Below 0 after a stray parenthesis, which whoever reads the part refuses.
        if letter == "," and depth <= 0:
            parts.append(text[start:index])
            start = index + 1
        depth += {"(": 1, ")": -1}.get(letter, 0)
    return [*parts, text[start:]]


def read_number(text: str, kind: type = float) -> int | float | str:
    """Read an `int` or `float`; return any other text unchanged, for the range check to reject.

    Only ASCII digits count: Python also reads those of other scripts, and underscores.

    Examples
    --------
    >>> read_number("1e3"), read_number("12", int), read_number("1_000", int)
    (1000.0, 12, '1_000')
    """
    try:
        return kind(text) if _NUMBER.fullmatch(text) else text
    except ValueError:  # a whole number with a point, or of more digits than Python reads
        return text


def parse_number(text: str) -> int | float | str:
    """Read a number, as a whole one if possible; return any other text unchanged."""
    number = read_number(text, int)
    return read_number(text) if isinstance(number, str) else number


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


# Settings of every run, with the ranges of the command line; pages narrow some of them.

DIALOGS = Field(
    "Dialogs per scenario",
    "More dialogs give narrower intervals.",
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
    "Largest number of cached entries after a turn.",
    name="budget",
    default=56,
    low=1,
    high=8192,
)
WORKERS = Field(
    "Workers", "Processes that share the dialogs of a run.", name="workers", low=1, high=256
)

PORT = Field("Port", "The port on which the app listens.", name="port", low=1, high=65_535)


def parameter(default: float | int | str, label: str, help: str, **facts: Any) -> Any:
    """Declare a dataclass field with a default and the attributes of a `Parameter`."""
    described = Parameter(label=label, help=help, **facts)
    return dataclasses.field(default=default, metadata={"parameter": described})


def share(default: float, label: str, help: str, **facts: Any) -> Any:
    """Declare a share from 0 to 1 that may differ between the rows of a batch."""
    return parameter(default, label, help, low=0, high=1, by_row=True, **facts)


def parameters_of(owner: Any) -> Mapping[str, Parameter]:
    """Return the parameters of a dataclass or instance by field name, in order."""
    parameters = {}
    for field in dataclasses.fields(owner):
        if "parameter" in field.metadata:
            parameters[field.name] = field.metadata["parameter"]
    return parameters


def defaults_of(owner: Any) -> Mapping[str, Any]:
    """Return the default of each declared parameter, by field name."""
    fields = dataclasses.fields(owner)
    return {field.name: field.default for field in fields if "parameter" in field.metadata}


def fields_of(settings: Any, owner: str = "") -> list[Field]:
    """Return the parameters of a dataclass with its defaults, or of an instance with its values."""
    fields = []
    for name, declared in parameters_of(settings).items():
        default = getattr(settings, name)
        fields.append(Field(**vars(declared), name=name, default=default, owner=owner))
    return fields


def changed(owner: Any, letters: bool = False) -> list[str]:
    """Return NAME=VALUE of each parameter of an instance that is not at its default.

    With `letters`, a name that only spells a Greek letter is that letter.
    """
    defaults = defaults_of(owner)
    settings = []
    for name, declared in parameters_of(owner).items():
        value = getattr(owner, name)
        if value != defaults[name]:
            is_letter = letters and declared.symbol == f"\\{name}"
            settings.append(f"{declared.letters if is_letter else name}={value}")
    return settings


class Checked:
    """Mixin for a frozen dataclass that checks its parameters on creation."""

    def __post_init__(self) -> None:
        """Check every parameter (ValueError) and convert its value to a plain Python number."""
        defaults = defaults_of(self)
        for name, declared in parameters_of(self).items():
            value = getattr(self, name)
            kind = type(defaults[name])
            check_parameter(name, declared, value, kind)
            # A NumPy scalar would bring its own precision into the arrays.
            object.__setattr__(self, name, kind(value))


def check_parameter(name: str, declared: Parameter, value: object, kind: type) -> None:
    """Raise a ValueError that names the value and what is allowed, unless it is allowed."""
    if not declared.accepts(value, kind):
        raise ValueError(f"{name} is {value!r}, but must be {declared.allowed(kind)}")


def check_count(name: str, value: Any, low: int = 1, high: float = math.inf) -> int:
    """Return a whole number from `low` to `high`, also one of NumPy; else raise a ValueError.

    Examples
    --------
    >>> check_count("budget", 0)
    Traceback (most recent call last):
    ValueError: budget is 0, but must be a whole number of at least 1
    """
    check_parameter(name, Parameter(name, "", low=low, high=high), value, int)
    return int(value)


def check_most(
    owner: str,
    count: int,
    noun: str,
    limit: int,
    error: type[ValueError] = ValueError,
) -> None:
    """Raise an error that names the owner if it has more than `limit` of something.

    Examples
    --------
    >>> check_most("the file has", 2_001, "dialogs", 2_000)
    Traceback (most recent call last):
    ValueError: the file has 2,001 dialogs, but at most 2,000 are allowed
    """
    if count > limit:
        raise error(f"{owner} {count:,} {noun}, but at most {limit:,} are allowed")


def check_values(kind: str, values: Sequence[Any], field: Field | None = None) -> None:
    """Raise a ValueError unless all values are different, and `field` allows each.

    There are at most `MAX_RUN_NAMES`.
    """
    for value, times in Counter(values).items():
        if field is not None:
            field.check(value, kind)
        if times > 1:
            raise ValueError(f"{kind} {str(value)!r} is given twice")
    check_most(f"{kind} has", len(values), "values", MAX_RUN_NAMES)
