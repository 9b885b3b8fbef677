"""Real dialogs: file formats, transcripts, and recordings of their tokens' vectors."""
