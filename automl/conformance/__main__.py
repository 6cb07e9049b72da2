"""`python -m automl.conformance FOLDER` writes a project of a plugin that passes its tests."""

import sys
from pathlib import Path
from typing import Final

FILES: Final = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "my-automl-plugin"
version = "0.1"
dependencies = ["automl-sweep"]

[project.optional-dependencies]
test = ["automl-sweep[plugin-tests]"]

[project.entry-points."automl.suggesters"]
uniform = "my_plugin:UniformSuggester"

[project.entry-points."automl.stoppers"]
patience = "my_plugin:PatienceStopper"

[tool.setuptools]
py-modules = ["my_plugin"]
""",
    "my_plugin.py": '''\
"""A suggester and a stopper. Replace them by your own."""

import numpy as np
from automl.stopping.base import CONTINUE, Decision, Stopper
from automl.suggesters.base import Suggester


class UniformSuggester(Suggester):
    """Random configurations, each of them once."""

    name = "uniform"

    def suggest(self, history, pending, count=1):
        rng = np.random.default_rng([self.seed, len(history) + len(pending)])
        known = [trial.params for trial in (*history, *pending)]
        new = []
        for params in self.space.sample(rng, 100 * count):
            if params not in known + new:
                new.append(params)
        return new[:count]


class PatienceStopper(Stopper):
    """Stops a trial whose last `patience` reports did not improve on the best before."""

    name = "patience"

    def __init__(self, *args, patience: int = 3, **options):
        super().__init__(*args, **options)
        self.patience = patience

    def decide(self, trial, trials):
        goal = self.goals[0]
        losses = [goal.loss(report.metrics[goal.metric]) for report in trial.reports]
        if len(losses) <= self.patience:
            return CONTINUE
        if min(losses[-self.patience :]) < min(losses[: -self.patience]):
            return CONTINUE
        return Decision("stop", f"no better for {self.patience} reports")
''',
    "test_my_plugin.py": '''\
"""What is special about the plugin; `pytest --automl-conformance` adds what all must hold."""

import automl


def objective(trial):
    for step in range(9):
        if not trial.report(step, loss=trial.params["x"] + step):
            break


def test_both_are_found_by_their_names():
    result = automl.sweep(
        objective,
        {"x": (0.0, 1.0)},
        "minimize loss",
        trials=4,
        dispatcher="inline",
        suggester="uniform",
        stopper="patience",
        progress=False,
    )
    assert any(len(trial.reports) < 9 for trial in result.trials)
''',
}


def write(folder: Path) -> None:
    """Write the project into a new folder; raises FileExistsError if it is there already."""
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    """The program; 2 if the folder exists or none is given."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("usage: python -m automl.conformance FOLDER\n")
        return 2
    try:
        write(Path(sys.argv[1]))
    except OSError as error:
        sys.stderr.write(f"Error: {sys.argv[1]} cannot be made: {error.strerror}\n")
        return 2
    sys.stdout.write(
        f"wrote {sys.argv[1]}; now: cd {sys.argv[1]}, pip install -e '.[test]', "
        "pytest --automl-conformance\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
