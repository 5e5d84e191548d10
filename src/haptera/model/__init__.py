"""The model: types and their bytes, the log and its fold included; no I/O, nothing above it."""
