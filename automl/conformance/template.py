"""A project of a plugin, with an extension of each kind: the files that `__main__` writes."""

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

# Delete the lines of what you do not need, and its file.
[project.entry-points."automl.suggesters"]
uniform = "my_plugin.suggester:UniformSuggester"

[project.entry-points."automl.stoppers"]
patience = "my_plugin.stopper:PatienceStopper"

[project.entry-points."automl.workloads"]
line = "my_plugin.workload:Line"

[project.entry-points."search_spaces.knobs"]
noise = "my_plugin.knob:NoiseKnob"

[project.entry-points."automl.strategies"]
mirror = "my_plugin.strategy:Mirror"

[project.entry-points."automl.trackers"]
json-file = "my_plugin.tracker:JsonFileTracker"

[tool.setuptools]
packages = ["my_plugin"]
""",
    "my_plugin/__init__.py": "",
    "my_plugin/suggester.py": '''\
"""A suggester: it proposes configurations."""

import numpy as np
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
''',
    "my_plugin/stopper.py": '''\
"""A stopper: it decides after each report whether a trial goes on."""

from automl.stopping.base import CONTINUE, Decision, Stopper


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
    "my_plugin/workload.py": '''\
"""A workload: a model, its data, its metrics and its space. torch is imported when it trains."""

from search_spaces import Choice, Float, Space
from workers.protocol import Metric
from workers.training.settings import TRAINING_METRICS
from workers.workloads._data import check_data_name
from workers.workloads._declarative_workload import TrainedWorkload


class Line(TrainedWorkload):
    """Fits a line to generated points."""

    name = "line"
    summary = "least squares on generated points"
    goals = ("minimize loss",)
    metrics = (Metric("loss", "minimize"), *TRAINING_METRICS)
    defaults = {"learning_rate": 0.1, "optimizer": "sgd", "max_epochs": 3}
    smallest = {"data": {}, "fixed": {"max_epochs": 1}}

    @classmethod
    def space(cls, hardware):
        return Space(
            Float("learning_rate", 1e-3, 1.0, log=True, default=0.1),
            Choice("optimizer", ["sgd", "adam"], default="sgd"),
        )

    @classmethod
    def check(cls, data, fixed):
        check_data_name(data, ("builtin",))

    def build_model(self):
        import torch

        torch.manual_seed(self.seed)
        return torch.nn.Linear(1, 1)

    def train_batches(self, epoch):
        import torch

        for _ in range(10):
            x = torch.linspace(-1, 1, 32)[:, None]
            yield {"x": x, "y": 2 * x + 1}

    def inputs(self, batch):
        return (batch["x"],)

    def criterion(self, output, batch):
        return (output - batch["y"]).square().sum()

    def weight(self, batch):
        return float(len(batch["x"]))

    def evaluate(self, model, device):
        batch = next(self.train_batches(0))
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        return {"loss": float(self.criterion(model(batch["x"]), batch) / self.weight(batch))}
''',
    "my_plugin/knob.py": '''\
"""A knob: options that are tuned together, and what they do to a model or to the training."""

from search_spaces.knobs import Knob, Option

NOISE = Option(
    "weight_noise",
    "share of noise that is added to the first weights",
    0.0,
    (0.0, 0.01, 0.1),
    ordered=True,
    affects=frozenset({"quality"}),
)


class NoiseKnob(Knob):
    """Adds noise to the weights with which a training begins."""

    name = "noise"
    summary = "noise of the first weights"
    options = (NOISE,)

    def change(self, model, values):
        share = NOISE.value(values)
        for parameter in model.parameters():
            if share:
                parameter.data.mul_(1 + share * parameter.data.clone().normal_())
''',
    "my_plugin/strategy.py": '''\
"""A parallelism strategy: how the ranks of a trial share a model."""

from search_spaces.knobs.parallelism import StrategyNeeds
from workers.parallel.strategies.ddp import DDP


class Mirror(DDP):
    """What `ddp` does. Derive from `workers.parallel.base.Strategy` for your own."""

    needs = StrategyNeeds("a mirror of ddp", backends=("gloo",))
''',
    "my_plugin/tracker.py": '''\
"""A tracker: it writes the trials of a sweep to another tool."""

import json
from pathlib import Path

from automl.trackers.base import Tracker


class JsonFileTracker(Tracker):
    """A file for each sweep, and in it a line each time that a trial has changed."""

    name = "json-file"
    module = "json"  # of the tool: it must be installed

    def open(self, sweep):
        self._file = Path(f"{sweep.name}.jsonl").open("a", encoding="utf-8")

    def write(self, trial, snapshot):
        line = {"trial": trial.number, "state": str(trial.state), **trial.metrics}
        self._file.write(json.dumps(line) + "\\n")
        self._file.flush()

    def close(self, snapshot):
        self._file.close()
''',
    "test_my_plugin.py": '''\
"""What is special about the plugin; `pytest --automl-conformance` adds what all must hold."""

import automl


def objective(trial):
    for step in range(9):
        if not trial.report(step, loss=trial.params["x"] + step):
            break


def test_three_are_found_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = automl.sweep(
        objective,
        {"x": (0.0, 1.0)},
        "minimize loss",
        trials=4,
        dispatcher="inline",
        suggester="uniform",
        stopper="patience",
        trackers="json-file",
        name="mine",
        progress=False,
    )
    assert any(len(trial.reports) < 9 for trial in result.trials)
    assert (tmp_path / "mine.jsonl").read_text().count("stopped") >= 1
''',
}
