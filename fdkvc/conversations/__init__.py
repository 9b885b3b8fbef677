"""People's conversations: formats, what their calls need, replay."""
