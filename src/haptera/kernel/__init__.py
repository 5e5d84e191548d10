"""The kernel: agents, sessions, queries and turns, by what lives how long."""
