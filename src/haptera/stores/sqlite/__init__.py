"""Sessions in one SQLite file. Imports the database driver, so import it only when it is used."""
