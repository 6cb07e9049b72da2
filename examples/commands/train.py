"""A script that knows nothing of automl."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.0)
arguments = parser.parse_args()

x, velocity = 5.0, 0.0
for epoch in range(1, 28):
    velocity = arguments.momentum * velocity - arguments.lr * x
    x += velocity
    print(f"epoch {epoch} val_loss {x * x:.6f}", flush=True)
