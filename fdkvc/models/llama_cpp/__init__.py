"""Policies inside llama.cpp; needs the packages of ``requirements-llama.txt``."""
