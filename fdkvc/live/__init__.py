"""Policies as a Hugging Face *transformers* cache, for your own models.

Needs the packages of ``requirements-capture.txt``.
"""

from fdkvc.live.cache import PolicyCache

__all__ = ["PolicyCache"]
