"""Ray, Ax, Optuna and extras are imported only by what uses them; a message names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_python import COMMAND, run, write

# What the main interfaces do without, by the name of its import.
ABSENT = (
    "ray", "ax", "optuna", "alembic", "psycopg", "pandas", "plotly", "s3fs", "PIL",
    "sklearn", "lightning", "transformers", "mlflow", "wandb", "tensorboard", "onnx",
)  # fmt: skip
SITE = f"""
import sys
from importlib.machinery import PathFinder

class Base(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[:] = [Base if finder is PathFinder else finder for finder in sys.meta_path]
"""
INLINE = """
import sys, automl
space = {"x": (-1.0, 1.0), "kind": ["a", "b"], "n": automl.Int("n", 1, 9)}
result = automl.sweep(
    lambda trial: (trial.params["x"] - 0.3) ** 2 + trial.params["n"],
    space, "minimize loss", trials=12, dispatcher="inline",
)
assert len(result.trials) == 12 and result.best.value < 5
assert result.recommended is not None
result.save_report("report.html")
import automl.studio.app
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files to run; Python finds nothing there of what extras bring."""
    write(tmp_path, SITE, INLINE)
    return tmp_path


def test_the_python_interface_and_its_report_need_no_extra(folder: Path) -> None:
    run(folder, "mine.py")
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_sweep_of_a_command_needs_no_extra(folder: Path) -> None:
    run(folder, "-m", "automl", "sweep", "line.yaml", *COMMAND)
    assert "4 of 4" in run(folder, "-m", "automl", "status", "line")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["suggester=tpe"], "the suggester 'tpe' needs optuna: pip install automl-sweep"),
        (["suggester=ax"], "the suggester 'ax' needs ax: pip install automl-sweep"),
        (["--dispatcher", "ray"], "the dispatcher 'ray' needs ray: pip install"),
        (["--ray-address", "auto"], "the dispatcher 'ray' needs ray: pip install"),
        (
            ["--store", "postgresql://host/name"],
            "a store that is a URL needs psycopg: pip install 'automl-sweep[postgres]'",
        ),
    ],
)
def test_what_needs_an_extra_says_which(folder: Path, words: list[str], message: str) -> None:
    told = run(folder, "-m", "automl", "sweep", "line.yaml", *words, *COMMAND, status=2)
    assert message in told
    assert "Traceback" not in told
    assert not (folder / ".automl").exists()
