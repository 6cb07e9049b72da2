"""Compares what two trees compute, through the public contracts only.

    python tests/stress/same_numbers.py BASE [HEAD] [--parts suggestions simulations ...]

BASE and HEAD are commits or folders; HEAD is the working tree if it is left out.

suggestions  `Optimizer` with `bayes`, on ten problems: 25 trials one by one, then several asks.
simulations  `automl.simulate` with `bayes`, `sobol` and `random` and three stoppers.
training     a short training on data that this file writes; the hash of its weights.

Every difference is printed. The exit status is 1 if there is one, else 0.
"""

import argparse
import hashlib
import importlib
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRIALS = 25
AT_ONCE = 6
Numbers = Iterator[tuple[str, Any]]


def main() -> int:
    """Compare as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit, or a folder that holds a checkout")
    parser.add_argument("head", nargs="?", default=str(ROOT))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--print", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.print:
        found = {key: value for part in given.parts for key, value in PARTS[part]()}
        tree = str(Path(importlib.import_module("automl").__file__ or "").parents[1])
        print(json.dumps({"tree": tree, "found": found}))
        return 0
    base, head = (of(tree, given.parts) for tree in (given.base, given.head))
    differing = {key: where for key in base if (where := difference(base[key], head.get(key)))}
    for key, where in differing.items():
        print(f"{key} differs: {where}")
    print(f"{len(base) - len(differing)} of {len(base)} are the same, {len(differing)} differ")
    return 1 if differing else 0


def of(tree: str, parts: list[str]) -> dict[str, Any]:
    """The numbers of one tree, computed in a process whose imports come from it."""
    with tempfile.TemporaryDirectory() as folder:
        checkout, work = Path(tree).resolve(), Path(folder, "work")
        work.mkdir()
        if not checkout.is_dir():
            checkout = Path(folder, "checkout")
            checkout.mkdir()
            packed = ["git", "-C", str(ROOT), "archive", tree]
            archive = subprocess.run(packed, check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(["tar", "-x", "-C", str(checkout)], check=True, input=archive)
        own = {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, __file__, str(checkout), "--print", "--parts", *parts]
        given: Any = {"env": os.environ | own, "cwd": work, "stdout": subprocess.PIPE}
        told = json.loads(subprocess.run(words, check=True, **given).stdout.splitlines()[-1])
        if told["tree"] != str(checkout):
            raise SystemExit(f"automl is imported from {told['tree']}, expected from {checkout}")
        return dict(told["found"])


def difference(base: Any, head: Any, where: str = "") -> str:
    """Where `head` lacks or changes something of `base` first; "" if it does not."""
    if isinstance(base, dict) and isinstance(head, dict):
        pairs = [(f"{where}.{key}", base[key], head.get(key)) for key in base]
    elif isinstance(base, list) and isinstance(head, list) and len(base) == len(head):
        found = zip(base, head, strict=True)
        pairs = [(f"{where}[{index}]", *both) for index, both in enumerate(found)]
    else:
        return "" if base == head else f"{where} is {base!r} and {head!r}"
    return next((text for place, *two in pairs if (text := difference(*two, place))), "")


# --- suggestions and simulations ---


def parameters() -> dict[str, tuple[Any, ...]]:
    """Ten spaces, each with names that say nothing."""
    from automl import Choice, Float, Int

    u, v, w = (Float(name, -1.0, 1.0) for name in "uvw")
    log = Float("q", 1e-5, 1e-1, log=True)
    whole, wide = Int("m", 1, 12), Int("n", 8, 512, log=True)
    kind, other = Choice("k", ["a", "b", "c"]), Choice("j", [1, 2, 4])
    child = Float("p", 0.0, 1.0, when={"k": "a"})
    return {
        "plane": (u, v),
        "three": (u, v, w),
        "log": (log, u),
        "whole": (whole, wide),
        "choices": (kind, other, whole),
        "mixed": (u, log, whole, kind),
        "conditional": (kind, child, u),
        "failing": (u, wide, kind),
        "noisy": (u, v, other),
        "front": (u, v, whole),
    }


def value_of(params: Mapping[str, Any]) -> float:
    """A smooth value with one dip of each number and a step of each choice."""
    total = 0.0
    for key in sorted(params):
        value = params[key]
        if isinstance(value, str):
            total += 0.3 * (ord(value) - ord("a"))
        else:
            place = math.log10(value) / 3 if key in "qn" else value / (12 if key == "m" else 1)
            total += (place - 0.37) ** 2
    return round(total, 9)


def suggestions() -> Numbers:
    """Configurations that `bayes` proposes."""
    from automl import Optimizer, Space

    for name, members in parameters().items():
        goals = ["minimize loss", "maximize gain"][: 2 if name == "front" else 1]
        noise = random.Random(name)
        with Optimizer(Space(*members), goals, seed=1) as optimizer:
            asked = []
            for _ in range(TRIALS):
                trial = optimizer.ask()
                asked.append(dict(trial.params))
                loss = value_of(trial.params) + (noise.gauss(0, 0.1) if name == "noisy" else 0)
                if name == "failing" and trial.params["n"] > 200:
                    optimizer.fail(trial, "out_of_memory")
                    continue
                told = {"loss": loss, "seconds": 1.0, "peak_memory_bytes": 1e8}
                gain = {"gain": trial.params["u"]} if name == "front" else {}
                optimizer.tell(trial, told | gain)
            yield f"suggestions {name}", asked
            several = [dict(optimizer.ask().params) for _ in range(AT_ONCE)]
            yield f"suggestions {name}, {AT_ONCE} asks", several


def simulations() -> Numbers:
    """Trajectories and trials of sweeps on a virtual clock."""
    from automl import Space, simulate

    def replay(params: Mapping[str, Any]) -> Iterator[tuple[float, dict[str, float]]]:
        for step in range(1, 28):
            yield 10.0 + params["m"], {"loss": value_of(params) + 2 / step}

    space = Space(*parameters()["mixed"])
    for suggester, stopper in itertools.product(("bayes", "sobol", "random"), ("asha", "curve")):
        result = simulate(
            replay,
            space,
            goals="minimize loss",
            workers=4,
            trials=30,
            seconds=1e9,
            suggester=suggester,
            stopper=stopper,
            max_steps=27,
            seed=2,
            replicates="none",
        )
        name = f"simulation {suggester}, {stopper}"
        yield f"{name}: trajectory", [list(point) for point in result.trajectory]
        trials = [[dict(t.params), str(t.state), t.started, t.ended] for t in result.trials]
        yield f"{name}: trials", trials


# --- training ---


def write_pairs(folder: Path) -> None:
    """A small parallel corpus in the layout of Multi30k."""
    pick = random.Random(0)
    words = {"the": "der", "dog": "hund", "cat": "kater", "old": "alte", "sees": "sieht"}
    folder.mkdir()
    for split, count in (("train", 240), ("val", 24), ("test_2016_flickr", 24)):
        lines = [pick.choices(list(words), k=pick.randint(3, 8)) for _ in range(count)]
        texts = {"en": lines, "de": [[words[word] for word in line] for line in lines]}
        for language, sides in texts.items():
            text = "".join(" ".join(line) + "\n" for line in sides)
            Path(folder, f"{split}.{language}").write_text(text)


def training() -> Numbers:
    """Metrics and hashes of weights of a short training of translation."""
    from safetensors.numpy import load_file

    folder = Path("data").resolve()
    write_pairs(folder)
    words = [sys.executable, "-m", "workers", "translation", "vocabulary_size=120", "width=64"]
    words += ["max_updates=12", "max_length=16", "data.name=multi30k", f"data.dir={folder}"]
    words += ["--out", "run", "--export", "model"]
    told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    ending = next(json.loads(line) for line in told.splitlines() if line.startswith("{"))
    volatile = ("second", "memory", "train_loss")  # `train_loss` is of the time since a report
    metrics = ending["metrics"]
    stable = {key for key in metrics if not any(word in key for word in volatile)}
    yield "training: metrics", {key: metrics[key] for key in sorted(stable)}
    tensors = {
        key: tensor
        for file in sorted(Path("model").rglob("*.safetensors"))
        for key, tensor in load_file(file).items()
    }
    yield (
        "training: weights",
        {
            key: hashlib.sha256(tensor.tobytes()).hexdigest()
            for key, tensor in tensors.items()
            if tensor.dtype.kind == "f"
        },
    )


PARTS: Mapping[str, Callable[[], Numbers]] = {
    "suggestions": suggestions,
    "simulations": simulations,
    "training": training,
}


if __name__ == "__main__":
    sys.exit(main())
