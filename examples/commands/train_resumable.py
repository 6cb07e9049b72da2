"""Reports, saves its state, ends if it should, and goes on; it needs no package."""

import argparse
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.0)
arguments = parser.parse_args()

state = Path(os.environ["AUTOML_CHECKPOINT_DIR"], "state")
epoch, x, velocity = 0, 5.0, 0.0
if state.exists():
    epoch, x, velocity = json.loads(state.read_text(encoding="utf-8"))
while epoch < 27 and not Path(os.environ["AUTOML_STOP"]).exists():
    epoch += 1
    velocity = arguments.momentum * velocity - arguments.lr * x
    x += velocity
    new = state.with_name("state.new")  # renamed when it is whole
    new.write_text(json.dumps([epoch, x, velocity]), encoding="utf-8")
    new.replace(state)
    with open(os.environ["AUTOML_REPORTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": epoch, "loss": x * x}) + "\n")
