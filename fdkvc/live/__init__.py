"""Policies inside other engines: *transformers* and llama.cpp.

`fdkvc.live.cache` needs the packages of ``requirements-capture.txt``, `fdkvc.live.llama` those of
``requirements-llama.txt``.
"""
