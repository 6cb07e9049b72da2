"""Files on disk: flushed, hashed, and opened in folders that may come from a stranger."""
