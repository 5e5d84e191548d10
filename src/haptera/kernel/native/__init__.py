"""Turns with an agent that keeps its own session."""
