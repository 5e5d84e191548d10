"""The tool registry: the only home of tools; schemas are made once, input is parsed once."""
