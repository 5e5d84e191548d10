"""Benchmarks: what Haptera costs in CPU time beside a hand-written loop and its peers."""
