"""What the operating system and the event loop give: files, tasks, threads, signals, tokens."""
