"""The policies inside llama.cpp."""
