"""Does `trial.prepare` compute the same under every setting, and what does it cost?

    python benchmarks/training/own_loops.py [--check]            20 updates, stores the rows
    python benchmarks/training/own_loops.py --quick [--check]    fewer combinations, 6 updates
    python benchmarks/training/own_loops.py --table [--check]    the stored rows

Four loops, each written by hand and with `trial.prepare`: `gpt` and `images` are loops of a few
lines, `nano` and `digits` scripts with the habits of nanoGPT's train.py and of the mnist of
pytorch/examples (`loops/`). Every combination of fp32 and bf16, compiled or not, accumulation 1, 2
and 4, and `single`, `ddp` and `fsdp` (two gloo ranks) is trained on the same batches. The numbers:

    fp32    largest relative difference of the loss from the hand-written loop's, at most 1e-5
    bf16    the same in bf16, from the hand-written loop in fp32, at most 2e-2
    cost    seconds of an update of `gpt` and `images` beside the hand-written loop's, at most 3%
    lines   that differ between a script and its copy with `trial.prepare`, at most 20
"""

from __future__ import annotations

import difflib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser
from benchmarks.training.forked import run_gang, warm
from benchmarks.training.loops import digits, digits_prepared, nano, nano_prepared
from benchmarks.training.loops.block import WIDTH, Block
from workers.context import Context
from workers.own_loop.prepare import prepare
from workers.protocol import Assignment, Report
from workers.run import run

LIMITS = {"fp32": 1e-5, "bf16": 2e-2}
COST = 0.03
MAX_LINES = 20
FOLDER = Path(__file__).parent / "loops"
ROWS = store.RESULTS / "own_loops.jsonl"
SEED = 1
WARM_UP = 10  # updates that are not timed
LENGTH, WORDS = 32, 96
TIMED = ("gpt", "images")
SCRIPTS = {
    "nano": (nano.train, nano_prepared.train),
    "digits": (digits.main, digits_prepared.main),
}
LOOPS = (*TIMED, *SCRIPTS)
Setting = dict[str, Any]


class Gpt(nn.Module):
    """Predicts the next of WORDS words; the first and the last layer share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, text: Tensor) -> Tensor:
        """The mean loss of texts (rows, LENGTH + 1)."""
        x = self.words(text[:, :-1]) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), text[:, 1:].flatten())


class Images(nn.Module):
    """A small residual network for images (rows, 3, 16, 16) of ten classes."""

    class Stage(nn.Module):
        """Two convolutions around a residual connection."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.Conv2d(24, 24, 3, padding=1) for _ in range(2))
            self.norm = nn.GroupNorm(4, 24)

        def forward(self, x: Tensor) -> Tensor:
            """Of the same shape."""
            return x + self.second(functional.gelu(self.norm(self.first(x))))

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, 24, 3, padding=1)
        self.stages = nn.ModuleList(Images.Stage() for _ in range(2))
        self.out = nn.Linear(24, 10)

    def forward(self, images: Tensor) -> Tensor:
        """The scores (rows, 10)."""
        x = self.into(images)
        for stage in self.stages:
            x = stage(x)
        return self.out(x.mean((2, 3)))


def gpt_batches(count: int) -> Iterator[Tensor]:
    """Texts of 16 rows in which the next word follows from the last."""
    for _ in range(count):
        first = torch.randint(WORDS, (16, 1))
        yield (first + 7 * torch.arange(LENGTH + 1)) % WORDS


def image_batches(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Images of 32 rows whose class is their brightest channel."""
    for _ in range(count):
        images = torch.randn(32, 3, 16, 16)
        yield images, images.mean((2, 3)).argmax(1)


def made(loop: str) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], Any]]:
    """The model, its optimizer and its batches, given how many."""
    torch.manual_seed(SEED)
    if loop == "gpt":
        model: nn.Module = Gpt()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3), gpt_batches
    model = Images()
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), image_batches


def by_hand(loop: str, updates: int, trial: Context | None = None) -> Iterator[float]:
    """The losses of the loop as its user has written it; they are reported if there is a trial."""
    model, optimizer, batches = made(loop)
    for step, batch in enumerate(batches(updates)):
        if loop == "gpt":
            loss = model(batch)
        else:
            loss = functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if trial is not None:
            trial.report(step, loss=loss)
        yield loss.item()


def prepared(trial: Context) -> None:
    """The same loop with `trial.prepare`."""
    loop, updates = trial.assignment.fixed["loop"], trial.assignment.fixed["updates"]
    if loop in SCRIPTS:
        SCRIPTS[loop][1](trial, updates)
        return
    for _ in with_prepare(trial):
        pass


def with_prepare(trial: Context) -> Iterator[None]:
    """The same loop, which pauses after each microbatch."""
    loop, updates = trial.assignment.fixed["loop"], trial.assignment.fixed["updates"]
    model, optimizer, batches = made(loop)
    model, optimizer, loader = trial.prepare(model, optimizer, batches(updates))
    for step, batch in enumerate(loader):
        if loop == "gpt":
            loss = model(batch)
        else:
            loss = functional.cross_entropy(model(batch[0]), batch[1])
        trial.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        trial.report(step, loss=loss)
        yield


def settings(quick: bool) -> list[Setting]:
    """Every combination; the quick ones leave compilation and accumulation 2 out."""
    modes = ("off",) if quick else ("off", "default")
    parts = (1, 4) if quick else (1, 2, 4)
    strategies = ("single", "ddp", "fsdp")
    found = itertools.product(strategies, ("fp32", "bf16"), modes, parts)
    names = ("parallelism", "precision", "compile", "accumulation")
    return [dict(zip(names, values, strict=True)) for values in found]


def losses(loop: str, trials: list[Setting], updates: int, ranks: int) -> list[dict[str, Any]]:
    """The losses by update under each setting, in one gang, or the failure."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"loop": loop, "updates": updates, "trials": trials}
        assignment = Assignment(
            "own", 0, 1, {}, None, folder, seed=SEED, num_ranks=ranks, fixed=fixed
        )
        outcome = run_gang(assignment, in_turn)
        if outcome.failure:
            raise SystemExit(f"{outcome.message}\n{outcome.details.get('traceback')}")
        found: list[dict[str, Any]] = json.loads((Path(folder) / "results.json").read_text())
        return found


def in_turn(context: Context) -> None:
    """Do one rank's part of all trials."""
    results = []
    for index, params in enumerate(context.assignment.fixed["trials"]):
        reports: list[Report] = []
        inner = Context(
            replace(context.assignment, params=params),
            reports.append,
            rank=context.rank,
            world_size=context.world_size,
            rendezvous=f"{context.rendezvous}-{index}" if context.world_size > 1 else "",
        )
        outcome = run(inner, prepared)
        found = {str(report.step): report.metrics["loss"] for report in reports}
        trace = str(outcome.details.get("traceback", ""))
        results.append({"losses": found, "failure": outcome.message, "trace": trace})
    if context.rank == 0:
        (context.folder / "results.json").write_text(json.dumps(results))


def measure(loop: str, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each setting: its largest difference from the hand-written loop."""
    updates = 6 if quick else 20
    exact = SCRIPTS[loop][0](updates) if loop in SCRIPTS else list(by_hand(loop, updates))
    for ranks, strategies in ((1, ("single",)), (2, ("ddp", "fsdp"))):
        trials = [one for one in settings(quick) if one["parallelism"] in strategies]
        for setting, found in zip(trials, losses(loop, trials, updates, ranks), strict=True):
            row = {"loop": loop, **setting, "failure": found["failure"]}
            got = found["losses"]
            if set(got) == {str(step) for step in range(updates)}:
                pairs = ((got[str(step)], loss) for step, loss in enumerate(exact))
                row["difference"] = max(abs(a / b - 1) for a, b in pairs)
            elif not row["failure"]:
                row["failure"] = f"reported the steps {', '.join(got)}"
            yield row


def cost(loop: str, updates: int) -> float:
    """How much longer an update takes with `trial.prepare`, as a part of the hand-written one.

    Both report each update.
    Both loops take turns, an update at a time, so that the load of the machine is the same for
    both. The medians of their processor time are compared.
    """
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"loop": loop, "updates": updates}
        assignment = Assignment("own", 0, 1, {}, None, folder, seed=SEED, fixed=fixed)
        plain, context = Context(assignment), Context(assignment)
        context.preparing = prepare
        loops: list[Iterator[Any]] = [by_hand(loop, updates, plain), with_prepare(context)]
        seconds: list[list[float]] = [[], []]
        for number in range(updates):
            for index in (0, 1) if number % 2 else (1, 0):
                begun = time.process_time()
                next(loops[index])
                seconds[index].append(time.process_time() - begun)
        context.loop.close(failed=False)
    theirs, ours = (median(one[WARM_UP:]) for one in seconds)
    return ours / theirs - 1


def lines_changed(script: str) -> int:
    """Lines of a script that differ from those of its copy, the longer side of each change."""
    files = [FOLDER / f"{name}.py" for name in (script, f"{script}_prepared")]
    before, after = (file.read_text().splitlines() for file in files)
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in changes if kind != "equal")


def claims(rows: list[dict[str, Any]], costs: dict[str, float]) -> list[Claim]:
    """Every setting was trained, and no number is above its limit."""
    known = {row["loop"] for row in rows}
    failed = [loop for loop in LOOPS if loop not in known]
    failed += [words(row) for row in rows if "difference" not in row]
    found = [complete("every setting", failed)]
    for precision, limit in LIMITS.items():
        of_it = [row for row in rows if row["precision"] == precision and "difference" in row]
        worst = max(of_it, key=lambda row: row["difference"], default=None)
        value = worst["difference"] if worst else None
        found.append(at_most(f"loss of {precision}", value, limit, words(worst) if worst else ""))
    found += [at_most(f"cost of {loop}", costs.get(loop), COST) for loop in TIMED]
    return found + [at_most(f"lines of {one}", lines_changed(one), MAX_LINES) for one in SCRIPTS]


def words(row: dict[str, Any]) -> str:
    """The setting of a row."""
    keys = ("loop", "parallelism", "precision", "compile", "accumulation")
    return " ".join(str(row[key]) for key in keys)


def main() -> int:
    """Measure, print a line for each setting, and judge."""
    parser = benchmark_parser(__doc__, "fewer combinations, 6 updates")
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=list(LOOPS))
    given = parser.parse_args()
    warm()
    rows = [] if given.quick else store.read(ROWS)
    for loop in [] if given.table else given.loops:
        found = list(measure(loop, given.quick))
        if loop in TIMED:
            found.append({"loop": loop, "cost": cost(loop, 200 if given.quick else 1000)})
        machine = store.machine()
        rows = [row for row in rows if row["loop"] != loop]
        rows += [{**row, "machine": machine} for row in found]
        if not given.quick:
            store.write(ROWS, rows)
    trained = [row for row in rows if "cost" not in row]
    for row in trained:
        said = f"{row['difference']:.1e}" if "difference" in row else row["failure"]
        print(f"{words(row):45} {said}")
    costs = {row["loop"]: row["cost"] for row in rows if "cost" in row}
    for loop, value in costs.items():
        print(f"{loop}: an update takes {value:+.1%} beside the hand-written loop")
    return conclude(claims(trained, costs)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
