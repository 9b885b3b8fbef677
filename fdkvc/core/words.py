"""Format numbers, lists, commands and errors for text."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal

import numpy as np

MOST_DIGITS = 6
"""Most decimals shown to tell two numbers apart; if they still look equal, they count as equal."""
AS_TYPED = str.maketrans({"−": "-", ",": ""})
"""Translates a written number into one that Python reads."""


def name_list(text: str) -> tuple[str, ...]:
    """Return the names in a text, which spaces separate: a long list reads better so."""
    return tuple(text.split())


def name_set(text: str) -> frozenset[str]:
    """Return the names in a text, which spaces separate, as a set."""
    return frozenset(text.split())


def minus(text: str) -> str:
    """Replace the hyphen of a formatted number by the minus sign."""
    return text.replace("-", "−")


def decimal(x: float, digits: int = 3) -> str:
    """Write a number with a fixed number of decimals, without a negative zero.

    Examples
    --------
    >>> decimal(0.41234), decimal(-0.123, 2), decimal(-0.004, 2), decimal(1980, 0)
    ('0.412', '−0.12', '0.00', '1,980')
    """
    return minus(f"{x:z,.{digits}f}")


def number(x: float, digits: int = 3) -> str:
    """Write a number with three decimals, a whole one without, a tiny one with one digit.

    Examples
    --------
    >>> number(0.41234), number(-56.0), number(0.00004321)
    ('0.412', '−56', '0.00004')
    """
    if x == round(x):
        return decimal(x, 0)
    if abs(x) >= 0.5 * 10**-digits:
        return decimal(x, digits)
    return minus(np.format_float_positional(x, precision=1, fractional=False))


def short(value: object) -> str:
    """Write a cell of a table: a fraction with three decimals, "" where it is missing.

    Examples
    --------
    >>> short(0.41234), short(3), short(float("nan")), short(None)
    ('0.412', '3', '', '')
    """
    if isinstance(value, float):
        return "" if np.isnan(value) else decimal(value)
    return "" if value is None else str(value)


def p_value(p: float) -> str:
    """Write a p-value, "" where there is none.

    Examples
    --------
    >>> p_value(0.04), p_value(0.0001), p_value(float("nan"))
    ('0.040', '< 0.001', '')
    """
    return "< 0.001" if p < 0.001 else short(p)


def p_words(p: float) -> str:
    """Return a p-value in words.

    Examples
    --------
    >>> p_words(0.0004), p_words(0.0312), p_words(0.25)
    ('p < 0.001', 'p = 0.031', 'p = 0.25')
    """
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def digits_for(*numbers: float | None, min_digits: int = 3) -> int:
    """Return the fewest decimals, `min_digits` to 6, at which different numbers look different."""
    different = {x for x in numbers if x is not None}
    for digits in range(min_digits, MOST_DIGITS + 1):
        texts = {number(x, digits) for x in different}
        if len(texts) == len(different):
            return digits
    return min_digits


def contrast(a: float, b: float, digits: int = 3) -> tuple[str, str]:
    """Write two numbers with as many decimals as they need to differ, up to six.

    Examples
    --------
    >>> contrast(0.2912, 0.2913)
    ('0.2912', '0.2913')
    >>> contrast(0.5, 0.5)
    ('0.500', '0.500')
    """
    places = digits_for(a, b, min_digits=digits)
    return number(a, places), number(b, places)


def gap(a: float, b: float, digits: int = 3) -> str:
    """Write the distance of two numbers as the difference of what `contrast` writes.

    Examples
    --------
    >>> contrast(0.8256, 0.8371), gap(0.8256, 0.8371)
    (('0.826', '0.837'), '0.011')
    """
    first, second = contrast(a, b, digits)
    if first == second:
        return number(abs(a - b))
    # Decimal, since the difference of the floats may round to another last digit.
    difference = Decimal(first.translate(AS_TYPED)) - Decimal(second.translate(AS_TYPED))
    return f"{abs(difference):,f}"


def written_bytes(size: float) -> str:
    """Write a number of bytes with its unit.

    Examples
    --------
    >>> written_bytes(1_234_567), written_bytes(999)
    ('1.2 MB', '999 bytes')
    """
    unit = "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size = size / 1000
        unit = larger
    digits = 0 if unit == "bytes" or size >= 100 else 1
    return f"{size:.{digits}f} {unit}"


def percent(share: float, digits: int = 0) -> str:
    """Write a share as a percentage.

    Examples
    --------
    >>> percent(0.1234), percent(0.1234, 1)
    ('12 %', '12.3 %')
    """
    return f"{decimal(100 * share, digits)} %"


def lost_likelihood(kl: float) -> str:
    """Write how much less likely, on average, a KL in nats makes what the full cache expects.

    Examples
    --------
    >>> lost_likelihood(0.191), lost_likelihood(0)
    ('17 %', '0 %')
    """
    return percent(1 - math.exp(-kl))


def rate(share: float) -> str:
    """Write a share as about 1 in so many, or in tenths where that is too rough.

    Examples
    --------
    >>> rate(0.0), rate(0.083), rate(0.62)
    ('none', 'about 1 in 12', 'about 6 in 10')
    """
    if not share:
        return "none"
    return f"about {10 * share:.0f} in 10" if share > 0.35 else f"about 1 in {1 / share:.0f}"


def signed(x: float, digits: int) -> str:
    """Write a number with its sign, ± for one that rounds to zero.

    Examples
    --------
    >>> signed(0.25, 1), signed(-0.123, 2), signed(-0.004, 2)
    ('+0.2', '−0.12', '±0.00')
    """
    words = minus(f"{x:+,.{digits}f}")
    return words if words.strip("+−0.") else f"±{words[1:]}"  # nothing is left of +0.00


def ranged(
    mean: float,
    low: float,
    high: float,
    digits: int = 3,
    write: Callable[..., str] = decimal,
) -> str:
    """Write a mean with its interval, if it has one.

    Examples
    --------
    >>> ranged(0.25, -0.1, 0.6, 1), ranged(0.25, -0.1, 0.6, 1, signed)
    ('0.2 (−0.1 to 0.6)', '+0.2 (−0.1 to +0.6)')
    >>> ranged(0.25, float("nan"), float("nan"))
    '0.250'
    """
    if np.isnan(low):
        return write(mean, digits)
    return f"{write(mean, digits)} ({write(low, digits)} to {write(high, digits)})"


def count(n: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun.

    Examples
    --------
    >>> count(1, "token"), count(3000, "entry", "entries"), count(0, "turn")
    ('1 token', '3,000 entries', 'no turns')
    """
    quantity = f"{n:,}" if n else "no"
    return f"{quantity} {noun if n == 1 else plural or noun + 's'}"


def clipped(text: str, width: int) -> str:
    """Cut a text to a number of characters.

    Examples
    --------
    >>> clipped("an account", 10), clipped("an account", 6)
    ('an account', 'an ac…')
    """
    return text if len(text) <= width else f"{text[: width - 1]}…"


def all_of(n: int, noun: str, plural: str = "") -> str:
    """Write "the one", "both" or "all n" with a noun.

    Examples
    --------
    >>> all_of(1, "token"), all_of(2, "entry", "entries"), all_of(56, "place")
    ('the one token', 'both entries', 'all 56 places')
    """
    quantity = {1: "the one", 2: "both"}.get(n, f"all {n:,}")
    return f"{quantity} {noun if n == 1 else plural or noun + 's'}"


def ordinal(n: int) -> str:
    """Write an ordinal number.

    Examples
    --------
    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 63, 1112)]
    ['1st', '2nd', '3rd', '4th', '11th', '63rd', '1,112th']
    """
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def listed(parts: Sequence[str]) -> str:
    """Join parts with commas and a last "and".

    Examples
    --------
    >>> listed(["20 A", "12 B", "3 C"])
    '20 A, 12 B and 3 C'
    """
    *earlier, last = parts
    return f"{', '.join(earlier)} and {last}" if earlier else last


def first_three(names: Sequence[str]) -> str:
    """Join the first three names with commas, and say if there are more."""
    parts = list(names[:3])
    if len(names) > 3:
        parts.append("and so on")
    return ", ".join(parts)


def uncapitalized(text: str) -> str:
    """Begin with a small letter, as within a sentence; symbols stay as they are.

    Examples
    --------
    >>> uncapitalized("Recovery (T)")
    'recovery (T)'
    """
    return text[:1].lower() + text[1:]


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop.

    Examples
    --------
    >>> sentence("the cache was empty")
    'The cache was empty.'
    """
    return f"{text[0].upper()}{text[1:]}."


def command_line(command: str, options: Mapping[str, object]) -> str:
    """Write a command line; an option with several words is a sequence, and one without is True.

    Examples
    --------
    >>> command_line("answers", {"write_calls": True, "budgets": (40, 80)})
    'python -m fdkvc answers --write-calls --budgets 40 80 --out results'
    >>> command_line("dialogs", {"policies": ["fd-kvc gamma=0.8", "pyramid(fifo, last=1.5)"]})
    "python -m fdkvc dialogs --policies fd-kvc:gamma=0.8 'pyramid(fifo,last=1.5)' --out results"
    """
    words = []
    for name, value in {**options, "out": "results"}.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is True:  # a flag
            continue
        values = value if isinstance(value, list | tuple) else (value,)
        for part in values:
            # A policy's name without spaces, as `read_policy` also reads it.
            text = str(part).replace(", ", ",").replace(" ", ":")
            words.append(shlex.quote(text))
    return " ".join(["python -m fdkvc", command, *words])


def error_reason(error: BaseException) -> str:
    """Return the message of an error in one line; the operating system's without its number.

    Examples
    --------
    >>> error_reason(FileNotFoundError(2, "No such file or directory", "a.json"))
    'no such file or directory'
    >>> error_reason(KeyError("vocab"))
    "there is no 'vocab'"
    """
    try:
        message = str(error)
    except Exception:  # an error of others, whose text fails as well
        message = ""
    if isinstance(error, OSError) and error.strerror:
        message = uncapitalized(error.strerror)
    reason = " ".join(message.split()) or type(error).__name__
    if isinstance(error, KeyError):
        reason = f"there is no {reason}"
    return reason[:200]


@contextmanager
def as_value_error(failed: str) -> Iterator[None]:
    """Turn any error of a library, including a panic in Rust, into a ValueError with its reason."""
    try:
        yield
    except BaseException as error:
        # The panic's class cannot be imported; other BaseExceptions are not the library's.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{failed}: {error_reason(error)}") from None
