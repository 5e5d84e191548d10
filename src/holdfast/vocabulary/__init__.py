"""The words of the house: frozen values that every other room speaks in; no behaviour, no I/O."""
