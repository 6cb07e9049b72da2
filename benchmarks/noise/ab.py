"""Does `automl ab` keep its promises, and how many runs does it take?

    python benchmarks/noise/ab.py                      measure and store the rows
    python benchmarks/noise/ab.py --quick [--check]    fewer simulated comparisons
    python benchmarks/noise/ab.py --table [--check]    the stored rows

Simulated: normal differences of pairs, of mean 0, one half and one standard deviation, and those of
Student's t with 3 degrees of freedom, whose tails are heavier than the test assumes. The runs are
compared with those of a paired t-test of fixed size on one side, with the same alpha and power.

Commands: a logistic regression that is trained by stochastic gradients, as two folders of edited
code: B is A, B is better (it averages its weights), B is worse (its learning rate is too high).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from automl.workflows.paired_test import MISSED, PairedTest
from benchmarks.common import store
from benchmarks.common.bounds import Claim, at_least, at_most, complete, conclude
from benchmarks.common.options import benchmark_parser

ROWS = store.RESULTS / "ab.jsonl"
ALPHA = 0.05
MAX_SHARE = 0.7  # of the runs of a test of fixed size
# By name: mean in standard deviations, and degrees of freedom of the noise.
SIMULATED = {
    "no difference": (0.0, None),
    "half a deviation": (0.5, None),
    "one deviation": (1.0, None),
    "no difference, heavy tails": (0.0, 3),
}
COMMANDS = {"equal": 10, "better": 0, "worse": 10}  # the exit status that each should have
TRAINING = """
import os
import numpy as np

rng = np.random.default_rng(int(os.environ["AUTOML_SEED"]))
x = np.random.default_rng(0).normal(size=(600, 20))
y = (x @ np.linspace(-1, 1, 20) + np.random.default_rng(1).normal(size=600) > 0) * 1.0
w, mean = rng.normal(size=20), np.zeros(20)
for step in range(STEPS):
    i = rng.integers(300)
    w += RATE * (y[i] - 1 / (1 + np.exp(-np.clip(x[i] @ w, -30, 30)))) * x[i]
    mean += (w - mean) / (step + 1)
p = 1 / (1 + np.exp(-np.clip(x[300:] @ RESULT, -30, 30)))
p = np.clip(p, 1e-6, 1 - 1e-6)
print("valid loss:", -np.mean(y[300:] * np.log(p) + (1 - y[300:]) * np.log(1 - p)))
"""
SETTINGS = {
    "A": {"STEPS": "2000", "RATE": "0.1", "RESULT": "w"},
    "equal": {},
    "better": {"RESULT": "mean"},
    "worse": {"RATE": "0.5"},
}


def fixed_pairs() -> int:
    """Pairs of a one-sided paired t-test of fixed size with the same errors, for one deviation."""
    for count in range(2, 100):
        critical = stats.t.ppf(1 - ALPHA, count - 1)
        if stats.nct.sf(critical, count - 1, np.sqrt(count)) >= 1 - MISSED:
            return count
    raise AssertionError("a t-test with 100 pairs finds one deviation")


def simulate(name: str, comparisons: int) -> store.Row:
    """Shares of the answers, and the mean number of pairs."""
    mean, freedom = SIMULATED[name]
    rng, test = np.random.default_rng(len(name)), PairedTest(ALPHA)
    answers, pairs, held = [], [], 0
    for _ in range(comparisons):
        noise = (
            rng.normal(size=test.most_pairs)
            if freedom is None
            else (rng.standard_t(freedom, size=test.most_pairs) / np.sqrt(freedom / (freedom - 2)))
        )
        differences = list(mean + noise)
        for count in range(2, test.most_pairs + 1):
            answer = test.answer(differences[:count])
            if answer != "not known":
                break
        low, high = test.interval(differences[:count])
        held += low <= mean <= high
        answers.append(answer)
        pairs.append(count)
    shares = {one: answers.count(one) / comparisons for one in sorted(set(answers))}
    return {
        "case": name,
        "comparisons": comparisons,
        "answers": shares,
        "pairs": float(np.mean(pairs)),
        "covered": held / comparisons,
    }


def run_commands(name: str) -> store.Row:
    """The answer of `automl ab` about two folders of code, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        for side, changes in (("a", {}), ("b", SETTINGS[name])):
            text = TRAINING
            for word, value in {**SETTINGS["A"], **changes}.items():
                text = text.replace(word, value)
            Path(folder, side).mkdir()
            Path(folder, side, "train.py").write_text(text)
        commands = [word for side in "ab" for word in ("--", sys.executable, f"{side}/train.py")]
        options = ["--metric", "loss", "--seed", "0", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "automl", "ab", *options, *commands],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        raise SystemExit(done.stderr)
    return {"case": name, "status": done.returncode, **json.loads(done.stdout)}


def table(rows: list[store.Row]) -> str:
    """A line for each case."""
    lines = [
        f"{'simulated':28}{'better':>8}{'worse':>8}{'none':>8}{'?':>8}{'pairs':>8}{'covered':>9}"
    ]
    for row in rows:
        if "answers" in row:
            kinds = ("better", "worse", "no difference", "not known")
            shares = "".join(f"{row['answers'].get(kind, 0):8.4f}" for kind in kinds)
            lines.append(f"{row['case']:28}{shares}{row['pairs']:8.2f}{row['covered']:9.3f}")
    lines.append(f"a t-test of fixed size: {fixed_pairs()} pairs\n")
    lines.append(
        f"{'commands':12}{'answer':>16}{'effect':>10}{'interval':>20}{'runs':>6}{'status':>8}"
    )
    for row in rows:
        if "status" in row:
            ends = "-" if row["interval"] is None else "{:.3f} to {:.3f}".format(*row["interval"])
            effect = f"{row['effect']:10.4f}{ends:>20}{row['runs']:6}{row['status']:8}"
            lines.append(f"{row['case']:12}{row['answer']:>16}{effect}")
    return "\n".join(lines)


def claims(rows: list[store.Row]) -> list[Claim]:
    """The error bounds, the runs, and the answers about commands."""
    found = {row["case"]: row for row in rows}
    missing = [case for case in (*SIMULATED, *COMMANDS) if case not in found]
    if missing:
        return [complete("every case", missing)]
    none, one = found["no difference"], found["one deviation"]
    right = sum(found[case]["status"] == status for case, status in COMMANDS.items())
    return [
        at_most("called better without a difference", none["answers"].get("better", 0), ALPHA),
        at_most("called worse without a difference", none["answers"].get("worse", 0), ALPHA),
        at_least("effects of one deviation found", one["answers"].get("better", 0), 1 - MISSED),
        at_most("runs, as a share of a t-test's", one["pairs"] / fixed_pairs(), MAX_SHARE),
        at_least("intervals that hold the mean", none["covered"], 1 - 2 * ALPHA),
        at_least("right answers about commands", right, len(COMMANDS)),
    ]


def main() -> int:
    """Measure, store the rows and print the table."""
    given = benchmark_parser(__doc__, "5,000 simulated comparisons of each kind").parse_args()
    if given.table:
        rows = store.read(ROWS)
    else:
        comparisons = 5000 if given.quick else 10_000
        rows = [simulate(name, comparisons) for name in SIMULATED]
        rows += [run_commands(name) for name in COMMANDS]
        rows = [{**row, "machine": store.machine()} for row in rows]
        if not given.quick:
            store.write(ROWS, rows)
    print(table(rows))
    return conclude(claims(rows)) if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
