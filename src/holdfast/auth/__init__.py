"""Auth: where credentials come from."""
