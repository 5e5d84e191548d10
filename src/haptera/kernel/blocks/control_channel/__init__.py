"""The control channel: events to any number of subscribers, each with a bounded buffer."""
