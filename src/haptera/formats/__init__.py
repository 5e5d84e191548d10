"""Exchange: sessions as files, in our own archive format and in the formats of other programs.

Everything here is pure: bytes in, values out, and back. Nothing opens a file or a store.
"""
