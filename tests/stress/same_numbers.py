"""Compares what two trees compute, through the public contracts only.

    python tests/stress/same_numbers.py BASE [HEAD] [--parts suggestions simulations ...]

BASE and HEAD are commits or folders; HEAD is the working tree if it is left out.

suggestions  `Optimizer` with `bayes`, on ten problems: 25 trials one by one, then several asks.
simulations  `automl.simulate` with `bayes`, `sobol` and `random` and three stoppers.
training     short trainings on data that this file writes; the hash of their weights.
folds        ten small sweeps in this process, as `trials`, `best` and `status` print them as JSON.
verbs        what the verbs print about a prepared store.

All use of earlier knowledge is off. Seconds, memory, paths and texts for people are left out of
JSON. HEAD may print more keys than BASE, never fewer. Every difference is printed. The exit status
is 1 if there is one, else 0.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TRIALS = 25
AT_ONCE = 6
PYTHON = (sys.executable, "-m")
Numbers = Iterator[tuple[str, Any]]

# What a contract names (design.md), without what differs from run to run.
TRIAL = {"number", "state", "params", "metrics", "value", "failure", "attempts", "replicate_of"}
BEST = TRIAL | {"sweep", "goals", "baseline", "pareto"}
STATUS = {"sweep", "state", "num_trials", "num_completed", "num_failed", "best", "workers"}
VOLATILE = re.compile(
    r"seconds|_bytes|created|^(message|summary|lease|version|host|store|path|peak_memory|worker)$"
)


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
        print(json.dumps({"tree": str(Path(imported().__file__).parents[1]), "found": found}))
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
        checkout = Path(tree).resolve()
        worktree = ["git", "-C", str(ROOT), "worktree"]
        if not Path(tree).is_dir():
            checkout = Path(folder, "checkout")
            subprocess.run([*worktree, "add", "-q", "--detach", str(checkout), tree], check=True)
        away = {"AUTOML_STORE", "RAY_ADDRESS"}
        environment = {key: value for key, value in os.environ.items() if key not in away}
        environment |= {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
        work = Path(folder, "work")
        work.mkdir()
        try:
            done = subprocess.run(
                [sys.executable, __file__, str(checkout), "--print", "--parts", *parts],
                env=environment,
                cwd=work,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            if not Path(tree).is_dir():
                subprocess.run([*worktree, "remove", "--force", str(checkout)], check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        if told["tree"] != str(checkout):
            raise SystemExit(f"automl is imported from {told['tree']}, expected from {checkout}")
        return dict(told["found"])


def imported() -> Any:
    """The package of the tree that is measured."""
    import automl

    return automl


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


def accepted(function: Callable[..., Any], **keywords: Any) -> dict[str, Any]:
    """Those of the keywords that this tree has: a later one may have none for earlier knowledge."""
    return {key: keywords[key] for key in keywords if key in inspect.signature(function).parameters}


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
        off: dict[str, Any] = accepted(Optimizer.__init__, knowledge="none", transfer=())
        with Optimizer(Space(*members), goals, seed=1, **off) as optimizer:
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
            **accepted(simulate, replicates="none"),
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


def write_reviews(folder: Path) -> None:
    """A few reviews in the layout of the IMDB data set."""
    pick = random.Random(1)
    for split, label in itertools.product(("train", "test"), ("pos", "neg")):
        place = Path(folder, "aclImdb", split, label)
        place.mkdir(parents=True)
        for index in range(40):
            words = pick.choices(["film", "a", "plot", "good" if label == "pos" else "bad"], k=12)
            Path(place, f"{index}_{9 if label == 'pos' else 2}.txt").write_text(" ".join(words))


TRAININGS: Mapping[str, tuple[Callable[[Path], None], str, tuple[str, ...]]] = {
    "translation": (
        write_pairs,
        "multi30k",
        ("vocabulary_size=120", "width=64", "max_updates=12", "max_length=16"),
    ),
    "sentiment": (write_reviews, "imdb", ("max_epochs=2",)),
}


def training() -> Numbers:
    """Metrics and hashes of weights."""
    from safetensors.numpy import load_file

    for name, (write, data, settings) in TRAININGS.items():
        folder, out = Path(f"data-{name}"), Path(f"run-{name}")
        write(folder)
        words = [*PYTHON, "workers", name, *settings, f"data.name={data}"]
        words += [f"data.dir={folder.resolve()}", "--out", str(out), "--export", f"{out}.model"]
        told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        ending = next(json.loads(line) for line in told.splitlines() if line.startswith("{"))
        volatile = ("second", "memory", "train_loss")  # `train_loss` is of the time since a report
        metrics = ending["metrics"]
        yield (
            f"training {name}: metrics",
            {key: metrics[key] for key in metrics if not any(word in key for word in volatile)},
        )
        hashes = {}
        for file in sorted(Path(f"{out}.model").rglob("*.safetensors")):
            for key, tensor in load_file(file).items():
                if tensor.dtype.kind == "f":
                    hashes[key] = hashlib.sha256(tensor.tobytes()).hexdigest()
        assert hashes, f"no weights of {name}"
        yield f"training {name}: weights", hashes


# --- folds ---


def objective(case: str) -> Callable[[Any], Any]:
    """A function that fails, stops and is interrupted as the case says."""
    from automl import TrialFailure

    failures: Mapping[int, Exception] = {
        2: TrialFailure("out_of_memory"),
        4: ValueError("no"),
        6: TrialFailure("timeout"),
        7: MemoryError("none left"),
    }

    def run(trial: Any) -> Any:
        marker = Path(f"{case}-{trial.number}.seen")
        first = not marker.exists()
        marker.touch()
        if case == "failures" and trial.number in failures:
            raise failures[trial.number]
        if case == "failures" and trial.number == 3:
            return {"loss": math.nan}
        if case == "retries" and trial.number in (3, 5) and (first or trial.number == 5):
            raise TrialFailure("preempted")
        if case == "interrupted" and trial.number in (4, 9) and first:
            os.kill(os.getpid(), signal.SIGINT)
        loss, began = value_of(trial.params), trial.restore() or 0
        for step in range(began + 1, 10):
            if not trial.report(step=step, loss=loss + 1 / step, gain=loss * step):
                return None
            trial.save(step)
        return loss if case == "bare" else {"loss": loss, "gain": loss * 2}

    return run


CASES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "plain": ("plane", "random", {}),
    "bare": ("log", "sobol", {}),
    "failures": ("mixed", "random", {}),
    "retries": ("whole", "random", {"max_retries": 2}),
    "paused": ("plane", "sobol", {"stopper": "asha", "resumable": True, "max_steps": 9}),
    "stopped": ("mixed", "random", {"stopper": "median", "max_steps": 9}),
    "enqueued": ("conditional", "random", {"enqueue": [{"k": "a", "p": 0.5}, {"u": 0.25}]}),
    "interrupted": ("three", "sobol", {}),
    "goals": ("front", "random", {"goals": ["minimize loss", "maximize gain"]}),
    "limits": ("conditional", "sobol", {"constraints": ["loss >= 0.2"], "replicates": 2}),
}


def folds() -> Numbers:
    """What the verbs print about ten sweeps."""
    from automl import Space, sweep

    for name, (space, suggester, more) in CASES.items():
        keywords = {"goals": "minimize loss", "knowledge": "none", "replicates": "none"} | more
        keywords |= {"trials": 14, "dispatcher": "inline", "suggester": suggester, "seed": 3}
        keywords |= {"progress": False, "name": name, "store": "folds"}
        keywords = accepted(sweep, **keywords)
        members = Space(*parameters()[space])
        again: dict[str, Any] = {"resume": False}
        for _ in range(4):
            try:
                sweep(objective(name), members, **accepted(sweep, **keywords), **again)
                break
            except KeyboardInterrupt:
                again = {"resume": True}
                keywords.pop("enqueue", None)
        for verb, keys in (("trials", TRIAL), ("best", BEST), ("status", STATUS)):
            value = json.loads(run(verb, name, "--store", "folds", "--json")["out"])
            yield f"fold {name}: {verb}", contract(value, keys)
            if verb == "best":
                advice = value["recommended"] or {}
                said = {key: advice[key] for key in ("params", "runs", "trials") if key in advice}
                yield f"fold {name}: recommended", said


def contract(value: Any, keys: set[str]) -> Any:
    """What a contract names of these objects, without what differs from run to run."""
    if isinstance(value, list):
        return [contract(one, keys) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: blanked(value[key]) for key in value if key in keys and not VOLATILE.search(key)}
    nested = {
        key: contract(kept[key], TRIAL) for key in ("best", "baseline", "pareto") if key in kept
    }
    return kept | nested


def blanked(value: Any) -> Any:
    """A JSON value without the keys that differ from run to run."""
    if isinstance(value, list):
        return [blanked(one) for one in value]
    if isinstance(value, dict):
        return {key: blanked(value[key]) for key in value if not VOLATILE.search(key)}
    return blank_text(value) if isinstance(value, str) else value


# --- verbs ---

SCRIPT = """
def objective(trial):
    print("trial", trial.number)
    for step in range(3):
        trial.report(step=step, loss=trial.params["u"] + 1 / (step + 1))
    if trial.number == 2:
        raise ValueError("no")
    return {"loss": trial.params["u"]}
"""
CONFIG = """name: mine
space:
  u: {low: 0.0, high: 1.0}
  k: [a, b]
goals: minimize loss
budget: {trials: 4}
suggester: random
workers: 1
seed: 1
"""
NMT = "TREE/configs/nmt.yaml"
FUNCTION = ("--objective", "mine.py:objective", "--dispatcher", "local")
VERBS: Sequence[tuple[str, ...]] = (
    ("sweep", "mine.yaml", *FUNCTION, "--dry-run"),
    ("sweep", "mine.yaml", *FUNCTION, "--json"),
    ("sweep", "mine.yaml", "--name", "second", "--trials", "2", "seed=5", *FUNCTION, "--json"),
    ("sweep", "mine.yaml", "budgget.trials=3", *FUNCTION),
    ("list", "--json"),
    ("status", "mine", "--json"),
    ("trials", "mine", "--json"),
    ("best", "mine", "--json"),
    ("logs", "mine", "1"),
    ("logs", "mine", "2"),
    ("watch", "mine"),
    ("report", "mine", "-o", "mine.html"),
    ("export", "mine", "-o", "model", "--json"),
    ("enqueue", "mine", "u=0.125"),
    ("enqueue", "mine", "u=7"),
    ("stop", "mine"),
    ("resume", "mine", "--trials", "6", *FUNCTION, "--json"),
    ("trials", "mine", "--json"),
    ("confirm", "second", "--seeds", "2", "--top", "2", *FUNCTION, "--json"),
    ("enqueue", "second", "u=0.25"),
    ("ask", "second", "--json"),
    ("tell", "second", "2", "loss=0.5", "--json"),
    ("pause", "second", "2"),
    ("tell", "second", "2", "loss=0.75", "--json"),
    ("best", "second", "--json"),
    ("workloads", "--json"),
    ("space", NMT, "--json"),
    ("doctor", "--json"),
    ("init", "-o", "new.yaml", "--", sys.executable, "train.py", "--u", "0.5"),
    ("launch", "slurm", NMT, "--dry-run"),
    ("delete", "second", "--yes"),
    ("list", "--json"),
    ("ab", "--metric", "loss", "--json", "--", "echo", "loss=0.5", "--", "echo", "loss=0.1"),
    ("best", "nobody", "--json"),
)
STATUS_ONLY = {"doctor"}  # what it finds differs from minute to minute


def verbs() -> Numbers:
    """Standard output and exit status; JSON is compared by its values."""
    Path("mine.py").write_text(SCRIPT)
    Path("mine.yaml").write_text(CONFIG)
    for index, words in enumerate(VERBS):
        printed = run(
            *(os.environ["PYTHONPATH"] + word[4:] if word == NMT else word for word in words)
        )
        text: Any = blank_text(printed["out"])
        if "--json" in words and printed["status"] == 0:
            value = json.loads(printed["out"])
            keys = {"trials": TRIAL, "status": STATUS} | dict.fromkeys(
                ("best", "sweep", "resume"), BEST
            )
            text = contract(value, keys[words[0]]) if words[0] in keys else blanked(value)
            text = "" if words[0] in STATUS_ONLY else text
        if words[0] == "launch":
            text = [line for line in text.splitlines() if line.startswith("#SBATCH")]
        yield f"verb {index} {words[0]}", {"status": printed["status"], "out": text}


def run(*words: str) -> dict[str, Any]:
    """Standard output and exit status of one verb."""
    done = subprocess.run(
        [*PYTHON, "automl", *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        check=False,
    )
    return {"status": done.returncode, "out": done.stdout}


def blank_text(text: str) -> str:
    """Text without paths, durations, sizes, times of day and identifiers of processes."""
    text = text.replace(str(Path.cwd()), "HERE").replace(os.environ["PYTHONPATH"], "TREE")
    text = re.sub(r"\d+(\.\d+)?\s?(ms|[smhd]|[kKMG]?i?B)\b", "#", text)
    text = re.sub(r"\d+:\d\d(:\d\d)?|0x[0-9a-f]+|line \d+", "#", text)
    return re.sub(r" +", " ", text)


PARTS: Mapping[str, Callable[[], Numbers]] = {
    "suggestions": suggestions,
    "simulations": simulations,
    "training": training,
    "folds": folds,
    "verbs": verbs,
}


if __name__ == "__main__":
    sys.exit(main())
