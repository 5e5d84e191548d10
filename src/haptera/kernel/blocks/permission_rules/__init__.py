"""Permission rules: whether a tool call may run, must be asked about, or is refused."""
