"""`automl ab`: the answer about two programs, its exit status, and what is kept."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl, refused

from automl.core import Noted
from automl.ledger import Ledger

# Prints a loss with noise of the seed, which pairs share but for a tenth of it.
PROGRAM = """\
import os, random, sys

seed = int(os.environ["AUTOML_SEED"])
common, own = random.Random(seed), random.Random(f"{seed} {OFFSET}")
print("train_loss = 0.01")
print("LINE".format(0.5 + OFFSET + 0.05 * common.gauss(0, 1) + 0.005 * own.gauss(0, 1)))
"""


@pytest.fixture
def programs(folder: Path) -> Path:
    for name, offset, line in (
        ("a", "0.0", "loss = {}"),
        ("better", "-0.1", "loss: {}"),
        ("slightly", "-0.004", "loss {}"),
    ):
        (folder / name).mkdir()
        text = PROGRAM.replace("OFFSET", offset).replace("LINE", line)
        (folder / name / "train.py").write_text(text)
    (folder / "broken.py").write_text("import nothing_of_this_name")
    return folder


def ab(a: str, b: str, *options: str, status: int) -> tuple[Any, str]:
    """The JSON, and what is said; it ends with that status."""
    commands = ("--", sys.executable, "-S", a, "--", sys.executable, "-S", b)
    given = ("--dispatcher", "inline", "--seed", "1", "--metric", "loss", "--json", *options)
    ended = automl("ab", *given, *commands)
    assert ended.exit_code == status, ended.output
    return json.loads(ended.stdout), ended.stderr


def test_better_is_status_0_and_the_runs_are_kept_in_pairs_of_one_seed(programs: Path) -> None:
    found, said = ab("a/train.py", "better/train.py", status=0)
    assert set(found) == {"answer", "effect", "interval", "runs"}
    assert found["answer"] == "better"
    assert found["interval"][0] < 0.1 < found["interval"][1]
    assert 8 <= found["runs"] <= 12
    assert "B is better than A by 0.099" in said
    with closing(Ledger.open(".automl", readonly=True)) as ledger:
        trials, spec = ledger.trials("ab"), ledger.spec("ab")
        notes = [one.message for one in ledger.events("ab") if isinstance(one, Noted)]
    values = [trial.metrics["loss"] for trial in trials]
    gains = [a - b for a, b in zip(values[::2], values[1::2], strict=True)]
    # Noise that the seed does not share would hide that each gain is near 0.1 or -0.1, in turns.
    assert [round(gain, 1) for gain in gains] == [0.1, -0.1] * (len(gains) // 2) + [0.1] * (
        len(gains) % 2
    )
    assert spec.paired
    assert notes[-1].startswith("B is better than A by ")


def test_equal_programs_are_no_difference_and_few_runs_tell_nothing(programs: Path) -> None:
    assert ab("a/train.py", "a/train.py", status=10)[0]["answer"] == "no difference"
    few, _ = ab("a/train.py", "slightly/train.py", "--runs", "4", status=3)
    assert (few["answer"], few["runs"]) == ("not known", 4)


def test_a_program_that_fails_is_not_better(programs: Path) -> None:
    found, said = ab("a/train.py", "broken.py", status=10)
    assert found["answer"] == "worse"
    assert "B failed 3 times" in said
    ab("broken.py", "a/train.py", status=3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "python"], "compare two commands"),
        ([], "compare two commands"),
        (["--", "python", "--"], "a command is needed after the second --"),
        (["--metric", "x", "--", "python", "--", "python"], "add --minimize or --maximize"),
        (["--metric", "", "--minimize", "--", "python", "--", "python"], "a goal is"),
        (["--metric", "loss", "--", "no-such", "--", "python"], "there is no program 'no-such'"),
        (["--metric", "loss", "--alpha", "2", "--", "python", "--", "python"], "alpha is from"),
        (["--metric", "loss", "--effect", "nan", "--", "python", "--", "python"], "effect is from"),
        (["--metric", "loss", "--runs", "1", "--", "python", "--", "python"], "1 is not in the"),
        (["--metric", "loss", "--reports", "(", "--", "python", "--", "python"], "no regular"),
        (["--metric", "loss", "--", "python", "{x}", "--", "python"], "names no parameter"),
    ],
)
def test_wrong_use_is_status_2_and_creates_nothing(
    folder: Path, words: list[str], said: str
) -> None:
    assert said in refused("ab", *words)
    assert not (folder / ".automl").exists()
