"""Operations: what a session, or the sessions of a store, can be asked: one struct for each."""
