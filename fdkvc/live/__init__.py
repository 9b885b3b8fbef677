"""Policies inside other people's engines: *transformers* and llama.cpp.

`PolicyCache` needs the packages of ``requirements-capture.txt``; `fdkvc.live.llama` needs
``llama-cpp-python``.
"""

from typing import Any

__all__ = ["FirstTokensWarning", "PolicyCache"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that one engine does not need the other."""
    if name == "PolicyCache":
        from fdkvc.live.cache import PolicyCache

        return PolicyCache
    if name == "FirstTokensWarning":
        from fdkvc.run.sinks import FirstTokensWarning

        return FirstTokensWarning
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
