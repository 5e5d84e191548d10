"""Benchmarks: what Holdfast costs in CPU time beside a hand-written loop and its peers."""
