"""What the project calls itself towards others, and what it was called before."""

OWN_VERSION = "0.1.0"
USER_AGENT = f"haptera/{OWN_VERSION}"
"""How requests name the program that sends them."""

FORMER_NAME = "holdfast"
"""The name in files that were written before it changed, and in transcripts of native agents."""
