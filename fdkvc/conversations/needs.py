r"""What a call needs that only memory can supply.

A *need* is a thing in a call's arguments that the agent can only have read or been told:

1. a path, an address, a host, an id, a hash, a key in capitals, or a name, as a whole argument;
2. the same inside a shell command, a patch, a query or a sentence, except names; in a command also
   identifiers (``low_water``) and branches (``fix-low-water``); in a patch or a file the paths that
   it changes, and what is no name of code;
3. a number, date or version of four or more digits, or a shorter one where the text has it in a
   line with the name of its parameter or flag (``port = 443``).

None are the programs, subcommands, flags and comments of a command and its working folder; numbers
that pace or place a call (offset, limit, timeout, a range of pages); settings (mode, status), and
plain words where a parameter has few values; names that most projects have (README.md); what an
edit replaces, as the file shows it; and what the agent makes up itself: a description, a plan with
its numbers, a new text.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from fdkvc.conversations.formats.chat import is_demanded, values_in
from fdkvc.conversations.sessions import MadeCall
from fdkvc.core.limits import MAX_NAME_CHARACTERS
from fdkvc.core.words import name_set

PACES = name_set(
    "a after b c backoff before bytes chars characters column columns context count cell delay "
    "depth duration end first from head height index interval last length limit line lines "
    "milliseconds ms n num offset page pages per position quality range rate ratio results retries "
    "retry rows score seconds seed size skip sleep start step tail temperature threshold timeout "
    "tokens top wait width window yield x y"
)
"""Words in the names of parameters whose numbers pace or place a call."""

SETTINGS = name_set(
    "action direction effort encoding format kind lang language level method mode operation option "
    "order output permission permissions priority role sandbox scope shell sort stage state status "
    "style subagent type unit units verbosity visibility"
)
"""Words in the names of parameters whose words are settings."""

MODES = name_set(
    "action direction effort encoding format kind lang language level mode operation permission "
    "permissions priority state status style type verbosity visibility"
)
"""Last words in the names of parameters that have settings with `-` or `_`, too."""

CODE = name_set("body code content diff input new old patch source string text update")
"""Words in the names of parameters for files and code that the agent writes."""

PROSE = name_set(
    "active answer comment fact form goal instruction instructions intent message "
    "note notes plan prompt question questions query step subject summary task title todo todos"
)
"""Words in the names of parameters for sentences that the agent writes."""

UNREAD = name_set(
    "cwd description explanation justification old oldstr reason thought workdir working workspace"
)
"""Words in the names of parameters without a need: the working folder, why a call is made, and what
an edit replaces."""

NAMES = name_set("file filename name path uri url")
"""Words in the names of parameters that hold a name nevertheless."""

LABELS = NAMES | name_set("branch dir id key machine set test")
"""Words in the names of parameters in which `MODES` are no settings."""

PATTERNS = name_set("glob globs include pattern patterns regex")
"""Words in the names of parameters that are searched for as the words of a search command."""

COMMON_FILES = name_set(
    "__pycache__ agents.md cargo.toml claude.md d3.js dockerfile express.js go.mod makefile "
    "mix.exs mix.lock next.js node.js node_modules nuxt.js package.json pyproject.toml react.js "
    "readme.md setup.py three.js tsconfig.json vue.js"
)
"""Names of files and folders that most projects have, and names of libraries that look so."""

COMMANDS = name_set("bash cmd command commands")
"""Words in the names of parameters for shell commands."""

QUERIES = name_set("query sql statement")
"""Words in the names of parameters for queries, which are read as commands."""

MOST_WORDS = 5
"""Words of a name at most; a longer text is searched for things."""

MIN_NAME = 8
"""Letters of a name of code in a text at least."""

MIN_PLAIN_NAME = 11
"""The same of one that begins with a capital, such as `PostgreSQL`: many of these are known."""

ROOTS = name_set(
    "app apps assets bin build config docs etc examples lib packages pages public scripts src test "
    "tests tools"
)
"""Folders with which plain words begin where they are a path in a sentence."""

FEW_USES = 3
"""From so many calls on, a parameter's plain words are settings if it has half as many values."""

SUFFIXES = (
    "bat bash c cc cfg cjs cmd conf cpp cs css csv dart db diff docx env erl ex exs gif go gradle "
    "gz h hpp hs html ini ipynb java jpeg jpg js json jsonl jsx kt lock log lua md mdx mjs pdf php "
    "pl plist png proto ps1 py pyi r rb rs rst scala scss sh sql sqlite svelte svg swift tar tex "
    "tf toml ts tsx tsv txt vue wasm xls xlsx xml yaml yml zip"
)
"""Ends of the names of files."""

# `console.log` is a function of JavaScript, whatever its ending.
_FILE = rf"(?!console\.log)[\w@+-][\w.@+-]*\.(?:{SUFFIXES.replace(' ', '|')})(?![\w-]|\.\w)"
_ROOT = r"(?:[A-Za-z]:|~|\.{1,2})?[/\\]"
_PATH = rf"{_ROOT}[\w.@+-]+(?:[/\\][\w.@+-]+)*|[\w.@+-]+(?:[/\\][\w.@+-]+)+|{_FILE}"
_ONE_PATH = re.compile(rf"{_ROOT}(?:(?!{_FILE} | {_ROOT}).)+")
_STRONG = re.compile(
    rf"""
    (?P<address>\w+://[^\s"'<>`|\\()\[\]{{}}]+ | [\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<path>(?<![\w.@/\\}}>-])(?:{_PATH}))
    | (?<![\w.-])(?P<id>
        [A-Z][A-Z\d]+-[A-Z]*\d[A-Z\d]*(?:-[A-Z\d]+)*    # a ticket: OPS-4471
        | (?=[a-f]*\d)(?=\d*[a-f])[\da-f]{{7,40}}        # a hash
        | [\da-f]{{8}}(?:-[\da-f]{{4}}){{3}}-[\da-f]{{12}}
            | \d{{1,3}}(?:\.\d{{1,3}}){{3}}                  # an address of a machine
        | [a-z][\w-]*(?:\.[\w-]+)*\.(?:com|dev|example|io|local|net|org)
      )(?![\w-]|\.\w)
    | (?<![\w.-])(?P<key>[A-Z][A-Z\d]*(?:_[A-Z\d]+)+)(?![\w-])    # API_TOKEN
    """,
    re.VERBOSE,
)
"""Things that are recognized in any text."""

_LOOSE = re.compile(
    r"(?=\S*[A-Za-z])(?=\S*\d)[\w@+]+(?:[.@+-][\w@+]+)+|(?=\S*[A-Z])(?=\S*\d)\w{5,}"
)
"""Ids of letters and digits, recognized as an argument or a word of a command."""

_IDENTIFIER = re.compile(r"[A-Za-z]\w*(?:_\w+|[a-z][A-Z]\w*)|[a-z]+(?:-[a-z\d]+)+")
# A name of one plain word is one of code only where a search has its definition.
_DEFINED = re.compile(
    r"\b(?:class|struct|trait|interface|type|def|fn|func)[ +*.\\s]+([A-Z]\w{3,})"
)
_CODE_NAME = re.compile(
    r"(?<![\w/@-])(?:[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*|[A-Z]+[a-z]\w*[A-Z]\w*)"
    rf"(?!\w|-\w|/\D|\.(?:{SUFFIXES.replace(' ', '|')})\b)"
)
_NAME = re.compile(r"[^\W\d_][\w.,'’-]*(?: [\w.,'’&-]+)*")
_SETTING = re.compile(r"(?=[a-z])W(?:[-_]W)+".replace("W", r"[a-z]*(?:\d{1,3}[a-z]*)?"))
"""Words in small letters with `-` or `_`, of which each has a short number at most: ``utf-8``."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_PLACE = re.compile(
    r"(?i)(?:.*\.)?(?:(?:line|page|view)?_?(?:lines?|pages?|ranges?)(?:\.\d+)?=\d+-\d+"
    r"|(?:todo\w*|plan)\.\d+\.id=\d{1,2})"
)
"""A parameter and its range of pages or lines, or the number of an item in a list of todos."""

_FIGURES = re.compile(r"[-+]?\d+(?:[-.:/ ]\d+)*")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SHELL = re.compile(
    r"\d?[<>]+&?\d?|[;|&\n()]+|(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s;|&()<>'\"])+"
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1(.*?)^\s*\2\s*$", re.DOTALL | re.MULTILINE)
# Agents may end the message of each commit with themselves as an author.
_COMMENT = re.compile(r"(?m)^\s*#.*$|^\s*Co-Authored-By:.*$")
_PATCHED = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:---|\+\+\+) [ab]/)(\S+)", re.M
)
# With a sign, since these words begin sentences, too.
_QUERY = re.compile(r"(?i)\b(select|update|delete|insert)\b.*[=*(]")
_SUBSTITUTE = re.compile(r"s([/|#,]).*\1.*\1\w*")

SEARCHES = name_set("ack ag egrep fgrep find git grep rg")
"""Programs that get patterns, in which identifiers are needs."""

PACED = name_set("chmod head kill seq sleep tail timeout")
"""Programs whose plain numbers are no needs."""

NOUN_FIRST = name_set("gh glab")
"""Programs whose first word says what a number is, as in ``gh pr view 7``."""

KEYS = name_set("id number")
"""Words after the noun that says what a number is, as in ``taskId``."""

MESSAGES = name_set("-m --message --title --body")
"""Flags of texts that the agent writes."""


class Thing(NamedTuple):
    """A thing in the arguments of a call."""

    slot: str
    """The name of the argument."""
    value: str
    """The thing as the call has it."""
    context_word: str = ""
    """A word that a line of the text must have beside it, "" for none."""
    is_name: bool = False
    """Whether it is made of words alone."""
    in_code: bool = False
    """Whether it is a name in code that the agent writes: a need only if nothing gave it since."""


def things_of(call: MadeCall, settings: Iterable[tuple[str, str]] = ()) -> Iterator[Thing]:
    """Yield the things in the arguments of a call that may be needs, each value once.

    `settings` are methods and parameters that have few values.

    Examples
    --------
    >>> [*things_of(MadeCall("Read", {"path": "src/port.py", "offset": 95}))]
    [Thing(slot='path', value='src/port.py', context_word='', is_name=False, in_code=False)]
    >>> [thing.value for thing in things_of(MadeCall("sh", {"cmd": "git cherry-pick 7c41e9b"}))]
    ['7c41e9b']
    """
    arguments = (
        call.arguments if isinstance(call.arguments, dict) else {"input": call.arguments}
    )
    values = set()
    for slot, value in values_in(arguments):
        if not is_demanded(value):
            continue
        is_setting = (call.method, slot) in settings
        for thing in _things_in(slot, value, is_setting):
            if thing.value not in values:
                values.add(thing.value)
                yield thing


def setting_slots(calls: Iterable[MadeCall]) -> frozenset[tuple[str, str]]:
    """Return the methods and parameters with few values, which are their settings."""
    words: dict[tuple[str, str], list[str]] = defaultdict(list)
    for call in calls:
        if isinstance(call.arguments, dict):
            for slot, value in values_in(call.arguments):
                if value.isalpha() and value.islower():
                    words[call.method, slot].append(value)
    slots = (slot for slot, uses in words.items() if 2 * len({*uses}) <= len(uses) >= FEW_USES)
    return frozenset(slots)


def _things_in(slot: str, value: str, is_setting: bool) -> Iterator[Thing]:
    """Yield the things in an argument."""
    words = {word.lower() for word in _PARTS.findall(slot)}
    value = value.strip()
    unspaced = value
    if words & NAMES and len(value) <= MAX_NAME_CHARACTERS and _ONE_PATH.fullmatch(value):
        unspaced = value.replace(" ", "_")  # a folder's name may have spaces
    if words & UNREAD and not words & NAMES:
        return
    if _last_word(slot) in MODES and not words & LABELS and _SETTING.fullmatch(value):
        return
    if words & COMMANDS or (words & QUERIES and _QUERY.search(value)):
        yield from (Thing(slot, *things) for things in _in_command(value))
    elif _FIGURES.fullmatch(value):
        is_pace = words & PACES and _NUMBER.fullmatch(value)
        if not (is_pace or _PLACE.fullmatch(f"{slot}={value}")):
            yield Thing(slot, value, "" if _is_long(value) else _last_word(slot))
    elif words & PATTERNS:
        yield from (Thing(slot, *things) for things in _in_word(value, "grep", ""))
    elif len(value) <= MAX_NAME_CHARACTERS and _is_thing(unspaced):
        yield Thing(slot, value)
    elif words & CODE:
        yield from (Thing(slot, things) for things in _in_code(value))
        yield from (Thing(slot, name, in_code=True) for name in _names_in(value, is_code=True))
    elif words & PROSE or "\n" in value:
        texts = chain(things_in_text(value), _names_in(value))
        yield from (Thing(slot, part) for part in texts)
    elif parts := [*things_in_text(value)]:
        yield from (Thing(slot, part) for part in parts)
    elif not (words & SETTINGS or is_setting) and _is_name(value):
        yield Thing(slot, value, is_name=True)


def _is_long(number: str) -> bool:
    return sum(map(str.isdigit, number)) >= 4


def _last_word(slot: str) -> str:
    """Return the last word in the name of a parameter, others than `KEYS` first."""
    words = [word.lower() for word in _PARTS.findall(slot) if not word.isdigit()]
    nouns = [word for word in words if word not in KEYS]
    return [*words, *nouns][-1] if words else ""


def _is_name(text: str) -> bool:
    """Whether a text is a few words without marks of code."""
    return (
        len(text.split()) <= MOST_WORDS
        and text.lower() not in COMMON_FILES
        and (_NAME.fullmatch(text) is not None or (not text.isascii() and "\n" not in text))
    )


def _is_thing(text: str) -> bool:
    """Whether a text is one thing as a whole."""
    if re.search(r"[\s*?{}$]", text) or text.lower() in COMMON_FILES:
        return False
    return any(pattern.fullmatch(text) for pattern in (_STRONG, _LOOSE, _IDENTIFIER))


def _names_in(text: str, is_code: bool = False) -> Iterator[str]:
    """Yield the names of code in a text, such as ``low_water``; in code, none after a point."""
    for match in _CODE_NAME.finditer(text):
        name = match[0]
        if is_code and text[match.start() - 1 : match.start()] == ".":
            continue
        is_plain = name.isalpha() and name[0].isupper()
        if len(name) >= (MIN_PLAIN_NAME if is_plain else MIN_NAME):
            yield name


def things_in_text(text: str) -> Iterator[str]:
    """Yield the things in a text that people or models write."""
    for match in _STRONG.finditer(text):
        thing = match[0].rstrip(".,:;")
        is_common = thing.lower() in COMMON_FILES
        if match["path"] is None or (_is_path(thing) and not is_common):
            yield thing


def _in_code(text: str) -> Iterator[str]:
    """Yield the things in a file or a patch that the agent writes: its own names are none."""
    yield from _PATCHED.findall(text)
    for match in _STRONG.finditer(text):
        if match["address"] or match["id"]:
            yield match[0].rstrip(".,:;")


def _is_path(text: str) -> bool:
    """Whether words with a slash in a text are a path, and not such as *and/or* or 1/2."""
    if not re.search("[A-Za-z]", text) or re.search(r"/dev/null$|\w/\d+$", text):
        return False
    if re.fullmatch("[a-z]+(?:/[a-z]+)+", text):
        return text.partition("/")[0] in ROOTS
    return (
        re.search(
            r"\w\.[A-Za-z]\w{0,5}$|\w[/\\].*[\d_-]|\w[/\\].*\w[/\\]|[/\\]\w.*[/\\]\w", text
        )
        is not None
    )


def _in_command(command: str) -> Iterator[tuple[str, str]]:
    """Yield the things in a shell command, and the word that must stand beside each."""
    command = _COMMENT.sub("", command)
    for heredoc in _HEREDOC.finditer(command):
        yield from ((thing, "") for thing in things_in_text(heredoc[3]))
    program = ""
    place = 0
    flag = ""
    for word in _SHELL.findall(_HEREDOC.sub("", command)):
        if re.fullmatch(r"[;|&\n()]+", word):
            program = ""
            place = 0
            flag = ""
        elif re.fullmatch(r"\d?[<>]+&?\d?", word):
            flag = ""
        elif (word.startswith("-") and len(word) > 1) or re.match(r"[A-Za-z_]\w*=", word):
            flag, _, value = word.partition("=")
            yield from _in_word(value, program, flag)
        elif not program:
            program = word
            if "/" in word:
                yield from _in_word(word, program, "")
        else:
            place += 1
            # As in `git cherry-pick`.
            is_subcommand = place == 1 and re.fullmatch("[a-z-]+", word) is not None
            if program != "cd" and not is_subcommand:
                yield from _in_word(word, program, flag)
            # A number may have its name before it as a word, as in `port 443` and `port = 443`.
            if place == 1 or program not in NOUN_FIRST:
                flag = word if word.isalpha() or (word in "=:" and flag) else ""


def _in_word(word: str, program: str, flag: str) -> Iterator[tuple[str, str]]:
    """Yield the things in a word of a command that follows a flag or another word."""
    word = word.strip("'\"")
    # Both of its texts are made up by the agent.
    if _SUBSTITUTE.fullmatch(word) and program in ("sed", "perl"):
        return
    words = {part.lower() for part in _PARTS.findall(flag)}
    if words & SETTINGS and (_IDENTIFIER.fullmatch(word) or _NUMBER.fullmatch(word)):
        return
    if _NUMBER.fullmatch(word):
        if program not in PACED and not words & PACES:
            if _is_long(word):
                yield word, ""
            elif words:
                yield word, _last_word(flag)
        return
    is_text = flag in MESSAGES or (program not in SEARCHES and re.search(r"\s", word))
    if is_text or "://" in word:
        yield from ((thing, "") for thing in chain(things_in_text(word), _names_in(word)))
        return
    if program in SEARCHES:
        yield from ((name, "") for name in _DEFINED.findall(word))
    for part in re.split(r"[\\|,=;:()\[\]{}<>\"'`\s]+|\.?\*+/?", word):
        text = part.rstrip("./")
        if len(text) <= MAX_NAME_CHARACTERS and _is_thing(text) and text != "/dev/null":
            yield text, ""
