"""What a model does with a conversation under a policy."""
