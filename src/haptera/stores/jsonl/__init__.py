"""Sessions as files in a folder: one append-only file of JSON lines for each."""
