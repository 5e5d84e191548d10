"""The conversation: messages in order, and the fold that derives them from a log."""
