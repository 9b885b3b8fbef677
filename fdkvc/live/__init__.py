"""Policies as a cache of Hugging Face *transformers*, for models that people bring.

Needs the packages of ``requirements-capture.txt``.
"""

from fdkvc.live.cache import PolicyCache

__all__ = ["PolicyCache"]
