"""Notes on settings that have no effect, and on needed values that are not checked."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from fdkvc.core.attention import KINDS, SPEAKERS
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import written
from fdkvc.core.scripts import word_count
from fdkvc.core.transcripts import Transcript
from fdkvc.core.unread import Unread
from fdkvc.core.words import count, first_three, listed, uncapitalized
from fdkvc.policies import Policy
from fdkvc.policies.base import Available, part
from fdkvc.policies.whitelist import Whitelist
from fdkvc.policies.wrapper import inside


def available_in(dialogs: DialogBatch) -> Available:
    """Return which inputs of policies the dialogs have."""
    present = {*(() if dialogs.kinds is None else dialogs.kinds.ravel().tolist())}
    return Available(
        speakers=() if dialogs.speakers is None else SPEAKERS,
        kinds=tuple(kind for index, kind in enumerate(KINDS) if index in present),
        words=dialogs.words is not None,
        heads=dialogs.heads,
        layers=dialogs.layers,
    )


def kinds_in(transcripts: Iterable[Transcript], *, calls: bool) -> tuple[str, ...]:
    """Return which `KINDS` the dialogs have; with `calls`, calls count even if not in the text.

    Examples
    --------
    >>> from fdkvc.core.transcripts import Turn
    >>> kinds_in([Transcript("a", (Turn("user", "hi"), Turn("bot", "yes")))], calls=True)
    ('user', 'assistant')
    """
    kinds = set()
    for transcript in transcripts:
        if calls and transcript.calls:
            kinds.add("call")
        for number, turn in enumerate(transcript.turns):
            # A turn may begin with calls: the first character's kind, and that of what follows.
            for character in (0, turn.call_characters):
                kinds.add(transcript.span_kind(number, character))
    return tuple(kind for kind in KINDS if kind in kinds)


def setting_changes(policy: Policy, original: Policy) -> list[str]:
    """Describe how a policy differs from another one: each setting, or its name.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> fd_kvc = policy_named("fd-kvc")
    >>> setting_changes(fd_kvc.variant(gamma=0.8), fd_kvc)
    ['recency decay (γ) at 0.8 instead of 0.88']
    >>> setting_changes(policy_named("h2o", window=0.25), fd_kvc)
    ['H2O window=0.25 instead of FD-KVC']
    """
    if [*map(type, inside(policy))] != [*map(type, inside(original))]:
        return [f"{policy.title} instead of {original.title}"]
    changes = []
    for name, setting in original.settings.items():
        changed = policy.settings[name]
        if changed != setting:
            # A text may be empty.
            value = written(changed.default) or "none"
            original_value = written(setting.default) or "none"
            name = uncapitalized(setting.title)
            changes.append(f"{name} at {value} instead of {original_value}")
    return changes


def no_effect_notes(policies: Sequence[Policy], available: Available) -> list[str]:
    """Return a sentence for each setting that has no effect with these inputs.

    Examples
    --------
    >>> from fdkvc.policies import read_policy
    >>> no_effect_notes([read_policy("fifo"), read_policy("pyramid(fifo)")], Available())
    ['Pyramid (FIFO): There is one layer here, so pyramid changes nothing.']
    """
    notes = []
    for policy in policies:
        notes += [f"{policy.title}: {note}" for note in policy.without_effect(available)]
    return notes


def pinned_notes(
    transcripts: Sequence[Transcript],
    policies: Sequence[Policy],
    budgets: Sequence[int],
    model_size: Callable[[Transcript], int] | None = None,
) -> list[str]:
    """Say where pinned system prompts do not fit into their share of the budget, or are missing.

    Entries are words, or tokens of a model if `model_size` gives the tokens of a dialog's prompt.

    Examples
    --------
    >>> from fdkvc.core.transcripts import Turn
    >>> from fdkvc.policies import policy_named, with_pinned_prompts
    >>> dialog = Transcript("a", (Turn("system", "Be kind to all", kind="system"),))
    >>> pinned_notes([dialog], with_pinned_prompts([policy_named("fifo")]), [4, 8])
    ['At 4 entries, only the first words of the pinned prompt stay: the longest has 4 words.']
    >>> pinned_notes([dialog], with_pinned_prompts([policy_named("fifo")]), [8])
    []
    """
    pins = [policy for policy in policies if isinstance(policy, Whitelist)]
    shares = [policy.most for policy in pins if policy.speaker == "prompt"]
    if not shares:
        return []
    size = _words_of_prompt if model_size is None else model_size
    longest = max(map(size, transcripts), default=0)
    if not longest:
        return ["No dialog has a system prompt, so pinning it changes nothing."]
    # The smallest share decides: if it holds the longest prompt, so do the others.
    smallest = min(shares)
    tight = [budget for budget in sorted(budgets) if part(budget, smallest) < longest]
    if not tight:
        return []
    sizes = listed([f"{budget:,}" for budget in tight])
    note = f"At {sizes} entries, only the first words of the pinned prompt stay"
    return [f"{note}: the longest has {count(longest, 'token' if model_size else 'word')}."]


def _words_of_prompt(transcript: Transcript) -> int:
    return sum(word_count(turn.text) for turn in transcript.turns if turn.kind == "system")


def missing_value_notes(transcripts: Sequence[Transcript]) -> list[str]:
    """Count the values carried over from another service, and those absent from the text."""
    carried = missing = 0
    for transcript in transcripts:
        carried += sum(demand.carried for demand in transcript.demands)
        missing += transcript.missing
    notes = []
    if carried:
        notes.append(f"Carried over from another service: {count(carried, 'value')}.")
    if missing:
        notes.append(f"Not found in the text: {count(missing, 'more value')}.")
    return notes


def unread_kinds(transcripts: Sequence[Transcript]) -> dict[str, int]:
    """Return how many fields and parts of each kind in these dialogs are not read.

    Examples
    --------
    >>> from fdkvc.conversations.formats import read_transcripts
    >>> unread_kinds(read_transcripts(b'[{"role": "user", "content": "hi", "mood": "glad"}]'))
    {"field 'mood'": 1}
    """
    kinds = chain.from_iterable(transcript.unread for transcript in transcripts)
    return dict(sorted(Unread.of(kinds).items()))


def not_read_notes(transcripts: Sequence[Transcript]) -> list[str]:
    """Say how a file of no known format is read, and count and name what is not read."""
    malformed = 0
    roles = dict[str, None]()
    guessed = dict[str, None]()
    numbered = []
    readings = []
    for transcript in transcripts:
        malformed += transcript.malformed_calls
        roles |= dict.fromkeys(transcript.unknown_speakers)
        guessed |= dict.fromkeys(filter(None, [transcript.guessed_user]))
        readings.append(transcript.reading)
        if transcript.numbered:
            numbered.append(transcript.name)
    parts = [f"{part} ({times:,}×)" for part, times in unread_kinds(transcripts).items()]
    notes = {
        f"The arguments of {count(malformed, 'tool call')} are not a JSON object: they are read as "
        "text, and none of them is checked.": malformed,
        f"Not read: {', '.join(parts)}.": parts,
        f"The first speaker is read as the user: {first_three([*guessed])}.": guessed,
        f"Unknown roles are read as the assistant: {first_three([*roles])}.": roles,
        f"Dialogs of the same name are numbered: {first_three(numbered)}.": numbered,
    }
    applying = [note for note, applies in notes.items() if applies]
    return [*filter(None, readings), *applying]
