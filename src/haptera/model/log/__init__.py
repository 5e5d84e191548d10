"""The log of a session: a class for each kind of entry, and the state that entries fold into.

`entry` has what all kinds share, `session_fold` the state, `fold` how whole logs are folded. Tests:
tests/kernel/blocks/conversation, tests/model/test_entry_kinds.py, tests/old_logs.
"""
