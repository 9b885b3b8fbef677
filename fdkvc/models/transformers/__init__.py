"""Policies inside other engines: *transformers* and llama.cpp.

`fdkvc.models.transformers.cache` needs the packages of ``requirements-capture.txt``,
`fdkvc.models.llama_cpp.chat` those of ``requirements-llama.txt``.
"""
