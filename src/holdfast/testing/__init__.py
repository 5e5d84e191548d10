"""Testing: what programs built on Holdfast, and its own tests, are tested with."""
