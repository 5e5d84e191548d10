"""One prompt while it is answered, with its measurements and its hooks."""
