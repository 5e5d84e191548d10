"""Sessions in PostgreSQL. Imports the database driver, so import it only when it is used."""
