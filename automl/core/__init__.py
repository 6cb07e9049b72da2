"""What everybody speaks of: trials, events, goals, and what a sweep is."""
