"""Sessions with and without a store: opening and closing, queue, inbox, branches, observers."""
