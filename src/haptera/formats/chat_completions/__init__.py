"""Chat Completions: its messages, in requests to any dialect and in documents."""
