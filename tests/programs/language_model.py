"""Stands for a training script of others: options with hyphens, a log on stderr, its own resume."""

import argparse
import json
import logging
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seconds", type=float, default=0.0, help="of an epoch")
parser.add_argument("--save", default="model.json")
parser.add_argument("--resume", default="")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
first = 1
if args.resume:
    with open(args.resume) as file:
        first = 1 + json.load(file)["epoch"]
for epoch in range(first, args.epochs + 1):
    time.sleep(args.seconds)
    loss = 1 / epoch + abs(args.lr - 30) / 100
    print(f"| epoch {epoch:3d} | lr {args.lr:5.2f} | ms/batch 8.21 | loss {loss - 0.125:5.3f}")
    with open(args.save + ".new", "w") as file:
        json.dump({"epoch": epoch, "lr": args.lr}, file)
    Path(args.save + ".new").replace(args.save)
    if "AUTOML_TRIAL" in os.environ and "TRAINED" in os.environ:
        with open(os.environ["TRAINED"], "a") as file:
            file.write(f"{os.environ['AUTOML_TRIAL']} {epoch}\n")
    logging.info("| end of epoch %3d | valid loss %5.3f | valid ppl %8.2f", epoch, loss, 99 * loss)
print(f"| End of training | test loss {loss - 0.0625:5.3f}")
