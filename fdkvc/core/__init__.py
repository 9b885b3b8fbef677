"""What everything is made of: settings, words, vectors, the cache, dialogs and transcripts."""
