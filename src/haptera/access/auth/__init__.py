"""Auth: the sources of credentials."""
