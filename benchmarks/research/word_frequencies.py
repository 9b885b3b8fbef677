"""Count the words of dialogs, for the table by which the lexical embedding knows surprisal.

    python -m benchmarks.research.word_frequencies train.json.xz fdkvc/core/word_frequencies.tsv

FILE is train.json.xz, the training dialogues of the Schema-Guided Dialogue dataset (Rastogi et al.
2020, CC BY-SA 4.0) as one list. Words with fewer than ten occurrences are left out.
"""

from collections import Counter

from benchmarks import options
from benchmarks.research.held_out import read_dialogues
from fdkvc.core.scripts import word_spans

LEAST = 10
"""The lowest count of a word in the table."""

HEAD = """\
# How often words are said in {dialogs:,} training dialogues of the Schema-Guided Dialogue dataset
# (Rastogi et al. 2020; google-research-datasets/dstc8-schema-guided-dialogue): {all:,} words and
# punctuation marks; those said {least} times or more, in small letters. Licence: CC BY-SA 4.0, that
# of the dataset. The line without a word counts all. Made by
# benchmarks/research/word_frequencies.py.
"""


def main() -> None:
    """Count and write."""
    asked = options(__doc__, "file", "table")
    dialogs = read_dialogues(asked.file)
    counts: Counter[str] = Counter()
    for dialog in dialogs:
        for turn in dialog["turns"]:
            text = turn["utterance"]
            counts.update(text[start:end].casefold() for start, end in word_spans(text))
    lines = [f"{word}\t{count}\n" for word, count in counts.most_common() if count >= LEAST]
    head = HEAD.format(dialogs=len(dialogs), all=counts.total(), least=LEAST)
    asked.table.write_text(f"{head}\t{counts.total()}\n{''.join(lines)}", "utf-8")


if __name__ == "__main__":
    main()
