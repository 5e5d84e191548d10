"""The vocabulary: frozen values that every other package uses; no behaviour, no I/O."""
