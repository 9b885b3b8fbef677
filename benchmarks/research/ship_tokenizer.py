"""Write the tokenizer that counts tokens where no model is given: SmolLM2's, without its weights.

    python -m benchmarks.research.ship_tokenizer

A token of it is a byte, a special token, or a merge of two tokens, in this order; so the merges
give the vocabulary. Needs the model of ``requirements-smollm2.txt`` (Apache License 2.0).
"""

import gzip
import json

from fdkvc.models.numpy.encoding import SHIPPED, as_tokenizer
from fdkvc.models.numpy.gguf_file import find_model, read_gguf


def main() -> None:
    """Write the file, after a check that it gives the same tokenizer."""
    stored = read_gguf(find_model("smollm2"))
    full = stored.tokenizer
    vocabulary = full["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.get)
    merges = [
        " ".join(pair) if isinstance(pair, list) else pair for pair in full["model"]["merges"]
    ]
    compact = {
        "first": words[: len(words) - len(merges)],
        "special": len(full["added_tokens"]),
        "template": stored.fields["tokenizer.chat_template"],
        "merges": merges,
    }
    again = as_tokenizer(compact)
    if again["model"]["vocab"] != vocabulary:
        raise ValueError("the merges do not give the vocabulary")
    content = json.dumps(compact, ensure_ascii=False, separators=(",", ":")).encode()
    SHIPPED.write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    main()
