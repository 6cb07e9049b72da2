"""Public data sets: fetched, checked, read."""
