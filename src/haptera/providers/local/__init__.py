"""Local models: small models on this machine's CPU, with their weights, process and client."""
