"""Runs the ranks of an attempt: Ray actors, gangs, local processes, and their supervision."""
