"""Config: what the program is told from outside: files and environment."""
