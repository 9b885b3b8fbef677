"""FD-KVC Lab: see, compare and judge KV-cache eviction policies for dialogs."""

__version__ = "1.0.0"
