"""What is not asked of a cache, or only in part, though dialogs need it: counted, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fdkvc.corpora.transcripts import Transcript
from fdkvc.words import count


def unsaid(transcripts: Sequence[Transcript]) -> list[str]:
    """Say how many values were said of another service alone, and how many nobody said."""
    carried = sum(demand.carried for each in transcripts for demand in each.demands)
    missing = sum(each.missing for each in transcripts)
    said = {
        f"Carried over from another service: {count(carried, 'demand')}.": carried,
        f"Never said in these words: {count(missing, 'more value')}.": missing,
    }
    return [sentence for sentence, many in said.items() if many]


def unread(transcripts: Sequence[Transcript]) -> list[str]:
    """Say how many calls demand nothing, as nobody can tell what their arguments are."""
    many = sum(each.malformed_calls for each in transcripts)
    sentence = (
        f"Of {count(many, 'tool call')} the arguments are no object in JSON: they are kept as "
        "text, and demand nothing."
    )
    return [sentence] if many else []
