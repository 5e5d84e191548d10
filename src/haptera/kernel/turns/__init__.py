"""Turns with a model: requests, attempts, compactions, what is checked between turns."""
