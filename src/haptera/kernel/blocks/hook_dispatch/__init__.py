"""Hooks: functions of the program that a session calls."""
