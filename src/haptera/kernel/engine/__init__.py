"""The engine: runs queries, turns, attempts and tools. Knows ports, never who is behind them."""
