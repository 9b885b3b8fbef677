"""A run as ``run.json``: its settings, written and read field by field.

The content is derived from the fields of the settings, so new fields need no change here. A file
holds nothing that `repeat` ignores, except `INFORMATIVE`.
"""

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import fdkvc
from fdkvc.core.json_input import WORDS
from fdkvc.core.limits import MAX_RUN_JSON_BYTES
from fdkvc.policies import Policy, as_record, baseline_of, recorded_policy

FORMAT = 2
"""The format of ``run.json``; increased when this version could misread a later one's file."""

INFORMATIVE = ("versions", "seconds")
"""Keys that do not affect the repeated run; they are reported where numbers differ."""


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of a ``run.json``."""

    kind: str
    """One of `fdkvc.commands.kinds.KINDS`."""
    settings: Any
    """What ran."""
    dependencies: Mapping[str, Any]
    """What the numbers depend on beside the settings."""
    parameters: Mapping[str, Any]
    """`settings` and `dependencies` as JSON values."""
    files: Sequence[str]
    """Names of the tables that the repeated run writes again."""
    versions: Mapping[str, str]
    """Of the packages and the code."""

    @property
    def benchmark(self) -> Any:
        """The benchmark that ran: a sweep's own, otherwise the settings."""
        return getattr(self.settings, "benchmark", self.settings)

    @property
    def baseline(self) -> str:
        """The policy that paired differences subtract."""
        return str(self.dependencies.get("baseline") or baseline_of(self.benchmark.policies))

    @property
    def finished(self) -> Mapping[str, int]:
        """Finished dialogs of each scenario; empty if all were."""
        return self.dependencies.get("finished") or {}


# ------------------------------------------------------------------------------- written


def run_json(
    kind: str, settings: Any, files: Iterable[str], seconds: float = 0.0, **details: Any
) -> str:
    """Return a ``run.json``, with its keys in a fixed order.

    `files` are the names of those that the same run writes again.
    `details` are what else the numbers depend on, in values that JSON can hold; None is omitted.
    """
    depends = {name: as_values(value) for name, value in details.items() if value is not None}
    run = {
        "format": FORMAT,
        "kind": kind,
        "parameters": {**as_values(settings), **depends},
        "versions": versions(),
        "seconds": seconds,
        "files": [*files],
    }
    text = json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # Bytes of a file name that are not UTF-8 are surrogates in Python, which only escapes write.
    return text.encode(errors="backslashreplace").decode()


def as_values(settings: Any) -> Any:
    """Return settings as JSON values.

    Examples
    --------
    >>> from fdkvc.paper.sweep import Sweep
    >>> as_values(Sweep(values=(0.8, 0.9)))["values"]
    [0.8, 0.9]
    """
    if isinstance(settings, Policy):
        return as_record(settings)
    if isinstance(settings, tuple):
        return list(map(as_values, settings))
    if dataclasses.is_dataclass(settings):
        names = (field.name for field in dataclasses.fields(settings))
        return {name: as_values(getattr(settings, name)) for name in names}
    return settings


def versions() -> dict[str, str]:
    """Return the versions of the project, its code, Python and numerical packages."""
    packages = ("numpy", "scipy", "pandas")
    return {
        "fdkvc-lab": fdkvc.__version__,
        "source": source_digest(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
    }


def version_words(version: str) -> str:
    """Return a version of the project in words, with the current one if that is another."""
    now = fdkvc.__version__
    words = f"version {version} of this project"
    return words if version == now else f"{words} (this is version {now})"


def digest(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def source_digest() -> str:
    """Return a digest of this package's source."""
    folder = Path(__file__).parents[1]
    joined = hashlib.sha256()
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]):
        name = path.relative_to(folder).as_posix()
        if not name.startswith("app/"):  # only an installed package has the app inside
            joined.update(name.encode() + path.read_bytes())
    return joined.hexdigest()[:16]


# ------------------------------------------------------------------------------- read


def parse_run(
    content: bytes | str,
    kinds: Mapping[str, tuple[type, Mapping[str, Any]]],
) -> Record:
    """Read a ``run.json``.

    `kinds` has the type of a kind's settings, and the types of what else its numbers depend on.
    Raises a ValueError that names what is wrong and where.
    """
    # 1. JSON of a format and a kind that this version reads.
    if len(content) > MAX_RUN_JSON_BYTES:
        raise ValueError(
            f"the file has {len(content):,} bytes, but a run.json has at most "
            f"{MAX_RUN_JSON_BYTES:,}"
        )
    try:
        run = json.loads(content)
    except UnicodeDecodeError:
        raise ValueError("the file is not a run.json: it is not text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is not a run.json: it is not JSON ({error})") from None
    if not isinstance(run, dict) or "parameters" not in run:
        raise ValueError("the file is not a run.json: it has no parameters")
    if "kind" not in run:
        raise ValueError(
            "the file does not name its kind of run: repeat it with the version that wrote it"
        )
    if run.setdefault("format", 1) == 1:  # it had a digest of each file, and the processor
        digests = run.pop("digests", {})
        run |= {
            "format": FORMAT,
            "files": [*digests] if isinstance(digests, dict) else digests,
        }
        run.pop("processor", None)
    if run["format"] != FORMAT:
        raise ValueError(
            f"the file has format {run['format']!r}, but version {fdkvc.__version__} reads format "
            f"{FORMAT}: repeat it with the version that wrote it"
        )
    parts = {
        "format": int,
        "kind": str,
        "parameters": dict[str, Any],
        "versions": dict[str, str],
        "seconds": float,
        "files": tuple[str, ...],
    }
    fields_read = _read_fields(parts, run, "")
    name = fields_read["kind"]
    parameters = fields_read["parameters"]
    if name not in kinds:
        raise ValueError(
            f"the file is a run of kind {name!r}, but must be one of {', '.join(kinds)}"
        )
    match parameters.get("axes") if name == "sweep" else None:  # as earlier versions wrote it
        case [[parameter, values]]:
            del parameters["axes"]
            parameters |= {"parameter": parameter, "values": values}
        case [_, _]:
            _refuse(
                "parameters.axes", "a sweep of two hyperparameters at once is not repeated"
            )
    # 2. The parameters: the fields of the settings, and what else the numbers depend on.
    settings_type, depends = kinds[name]
    needed_parameters = {key: value for key, value in parameters.items() if key in depends}
    fields = {key: value for key, value in parameters.items() if key not in depends}
    dependencies = _read_fields(depends, needed_parameters, "parameters")
    for missing in depends.keys() - dependencies.keys():  # None is not written
        if NoneType not in get_args(depends[missing]):
            _refuse(f"parameters.{missing}", "it is missing")
    settings = read_value(settings_type, fields, "parameters")
    if "baseline" in dependencies:
        names = getattr(settings, "names", None) or [
            policy.name for policy in settings.policies
        ]
        if dependencies["baseline"] not in names:
            why = f"{dependencies['baseline']!r} is not one of its policies"
            _refuse("parameters.baseline", why)
    return Record(
        name,
        settings,
        dependencies,
        parameters,
        fields_read.get("files", ()),
        fields_read.get("versions", {}),
    )


_hints = cache(get_type_hints)  # which evaluates the annotations at every call


def read_value(kind: Any, value: Any, place: str) -> Any:
    """Read a JSON value as a type: number, text, choice, tuple, object, policy or dataclass.

    Raises a ValueError that names the place of what is wrong.
    """
    value_types = get_args(kind)
    # 1. What holds for the type as a whole: anything, optional, one of a few values.
    if kind is Any or (value is None and NoneType in value_types):
        return value
    if NoneType in value_types:
        return read_value(
            next(part for part in value_types if part is not NoneType), value, place
        )
    if get_origin(kind) is Literal:
        if value not in value_types:
            _refuse(
                place, f"it is {str(value)[:40]!r}, but must be {' or '.join(value_types)}"
            )
        return value
    # 2. The class of the value: int | float is a number, and tuple[int, ...] a tuple. In JSON it is
    # a list for a tuple, and an object for a dataclass or a policy.
    plain: Any = float if set(value_types) == {int, float} else get_origin(kind) or kind
    json_kind: Any = plain if plain in WORDS else dict
    if issubclass(plain, tuple):
        json_kind = list
    if type(value) is not json_kind and not (plain is float and type(value) is int):
        _refuse(place, f"it is not {WORDS[json_kind]}")
    # 3. Its parts, each read by its own type.
    if json_kind is list:
        named = plain is not tuple
        kinds = tuple(_hints(kind).values()) if named else value_types
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(value)
        if len(kinds) != len(value):
            _refuse(place, f"it has {len(value)} parts, but must have {len(kinds)}")
        pairs = enumerate(zip(kinds, value, strict=True))
        parts = tuple(read_value(type_, part, f"{place}[{n}]") for n, (type_, part) in pairs)
        return kind(*parts) if named else parts
    if plain is dict:
        return _read_fields(dict.fromkeys(value, value_types[1]), value, place)
    if plain in WORDS:
        return value
    make = recorded_policy
    values = value
    if kind is not Policy:
        fields = {field.name: _hints(kind)[field.name] for field in dataclasses.fields(kind)}
        make = kind
        values = _read_fields(fields, value, place)
    try:
        return make(**values)
    except TypeError:  # a field without a default is missing
        _refuse(place, f"something is missing: it has only {', '.join(value) or 'nothing'}")
    except ValueError as error:
        _refuse(place, str(error))


def _read_fields(
    kinds: Mapping[str, Any], values: Mapping[str, Any], place: str
) -> dict[str, Any]:
    """Read the given fields of an object, and refuse others."""
    inside = f"{place}." if place else ""
    for name in values:
        if name not in kinds:
            _refuse(inside + name, f"it is unknown, but must be one of {', '.join(kinds)}")
    return {
        name: read_value(kinds[name], value, inside + name) for name, value in values.items()
    }


def _refuse(place: str, why: str) -> NoReturn:
    raise ValueError(f"the file is invalid at {place}: {why}") from None
