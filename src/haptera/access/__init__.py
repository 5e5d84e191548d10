"""Access: what people and surfaces need beyond an agent."""
