"""Snapshots of a folder's files as trees of a git repository of their own."""
