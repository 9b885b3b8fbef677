"""FD-KVC Lab: see, compare and judge KV-cache eviction policies for dialogs."""
