"""Claude Agent: the native agent `claude-agent/<model>` over the package claude-agent-sdk."""
