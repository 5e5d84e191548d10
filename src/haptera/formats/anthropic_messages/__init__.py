"""Anthropic Messages: content blocks, in requests, documents and Claude Code's files."""
