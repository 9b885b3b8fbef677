"""Policies inside *transformers*; needs the packages of ``requirements-capture.txt``."""
