"""Administration: what people and surfaces need beyond an agent."""
