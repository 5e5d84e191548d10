"""The stream processor: puts the parts of an answer together while it streams."""
