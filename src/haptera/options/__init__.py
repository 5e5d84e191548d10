"""Options: what structs declare of them, what is checked when they are given, and what holds."""
