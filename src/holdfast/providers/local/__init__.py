"""Real small models on this machine's CPU: their weights, their process, their client."""
