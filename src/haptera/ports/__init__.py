"""Ports: what the core needs from the world, as small protocols whose docstrings are promises."""
