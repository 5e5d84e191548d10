"""Sessions in one SQLite file. Import this room only where that store was asked for."""
