"""Stands for a script that reads `key=value`, a boolean in Python's spelling, and its own flag."""

import sys

values = dict(argument.split("=", 1) for argument in sys.argv[1:])
assert set(values) == {"learning_rate", "use_bias", "init_from", "out_dir"}, values
bias = {"True": 0.0, "False": 0.5}[values["use_bias"]]
assert values["init_from"] in ("scratch", "resume")
print(f"step 250: train loss 0.1, val loss {float(values['learning_rate']) + bias:.4f}")
