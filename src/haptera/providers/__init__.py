"""Providers: wire protocols, transport, vendors, and models on this machine."""
