"""Sessions: their lifecycle, their recorder, their queue; consumers of the engine and the ports."""
