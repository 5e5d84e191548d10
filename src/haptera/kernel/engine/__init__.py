"""The engine: agent, session, query and turn, by how long they live; the recorder. Knows ports."""
