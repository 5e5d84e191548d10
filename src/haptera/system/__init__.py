"""The room of what the operating system and the event loop give: files, tasks, threads, signals to stop, tokens."""
