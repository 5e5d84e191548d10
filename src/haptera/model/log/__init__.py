"""The log of a session: a class for each kind of entry, and the state that entries fold into."""
