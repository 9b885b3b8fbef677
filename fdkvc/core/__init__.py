"""What all packages share: settings, words, attention, the cache, dialogs and transcripts."""
