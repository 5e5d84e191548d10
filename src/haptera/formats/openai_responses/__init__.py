"""OpenAI Responses: its items, in requests, documents and Codex's files."""
