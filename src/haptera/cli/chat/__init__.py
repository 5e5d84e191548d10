"""The interactive client: `haptera` and `haptera chat` on a terminal."""
