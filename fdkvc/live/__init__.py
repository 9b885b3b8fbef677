"""Policies as a Hugging Face *transformers* cache, for your own models.

Needs the packages of ``requirements-capture.txt``.
"""

from fdkvc.live.cache import PolicyCache
from fdkvc.run.sinks import FirstTokensWarning

__all__ = ["FirstTokensWarning", "PolicyCache"]
