"""Python with `automl.client`: it reports, saves its state, ends if it should, and goes on."""

import argparse

from automl.client import checkpoint_dir, report, resumed

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.0)
arguments = parser.parse_args()

state = checkpoint_dir() / "state"
epoch, x, velocity = 0, 5.0, 0.0
if resumed() and state.exists():
    saved = state.read_text(encoding="utf-8").split()
    epoch, x, velocity = int(saved[0]), float(saved[1]), float(saved[2])
while epoch < 27:
    epoch += 1
    velocity = arguments.momentum * velocity - arguments.lr * x
    x += velocity
    new = state.with_name("state.new")  # renamed when it is whole
    new.write_text(f"{epoch} {x!r} {velocity!r}\n", encoding="utf-8")
    new.replace(state)
    if not report(epoch, loss=x * x):
        break
