"""Stores: places where sessions are kept. Each is a bundle of the ports in `session_store`."""
