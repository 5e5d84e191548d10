"""Providers: wire protocols, transport, and vendors as compositions of both."""
