"""What users write: agents, their sessions and their streams."""
