"""Sweeps of other tools, read from their files as data: for `automl init --from FILE`."""
