"""Policies inside other engines: *transformers* and llama.cpp.

`PolicyCache` needs the packages of ``requirements-capture.txt``; `fdkvc.live.llama` needs those of
``requirements-llama.txt``.
"""

from typing import Any

from fdkvc.run.sinks import FirstTokensWarning

__all__ = ["FirstTokensWarning", "PolicyCache"]


def __getattr__(name: str) -> Any:
    """Load `PolicyCache` on first use, so that one engine does not need the other."""
    if name != "PolicyCache":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fdkvc.live.cache import PolicyCache

    return PolicyCache
