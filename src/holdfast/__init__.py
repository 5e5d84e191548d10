"""Holdfast: LLM agent sessions that hold."""
