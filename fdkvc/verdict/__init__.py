"""Which policy and budget suit these conversations: the command and the page Dialogs."""
