"""The composition root: names concrete providers, stores and tools, and builds each block once."""
