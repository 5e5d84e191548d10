"""Building blocks: constructed once, reused for every query; no files, no sockets, no own clock."""
