"""The agent's side: `record()` and what it stands on, and adapters for frameworks (each imported by name)."""
