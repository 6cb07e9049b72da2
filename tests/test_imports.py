"""Which package may import which, and which modules must load without torch and Ray."""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from sources import MODULES, ROOT, imports

ALLOWED = {
    "search_spaces": {"search_spaces"},
    "workers": {"workers", "search_spaces"},
    "automl": {"automl", "workers", "search_spaces"},
}
HEAVY = (
    "torch",
    "ray",
    "optuna",
    "ax",
    "botorch",
    "gpytorch",
    "pandas",
    "plotly",
    "sentencepiece",
)
LIGHT = (
    "automl",
    "automl.config",
    "automl.errors",
    "automl.core.goals",
    "automl.ledger",
    "automl.core.state",
    "automl.core.spec",
    "automl.core.trial",
    "automl.suggesters.bayes",
    "automl.workflows.beginning",
    "search_spaces",
    "search_spaces.expressions",
    "search_spaces.hardware",
    "search_spaces.knobs",
    "search_spaces.plugins",
    "workers.context",
    "workers.parallel",
    "workers.protocol",
    "workers.workload",
)


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    assert "search_spaces.errors" in set(imports("search_spaces", everywhere=False))
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        if module.split(".")[0] == package
        for target in imports(module, everywhere=True)
        if target.split(".")[0] in {*ALLOWED, "tests", "benchmarks", "examples"} - ALLOWED[package]
    ]
    assert wrong == []


def test_no_module_level_cycles() -> None:
    graph = {module: set(imports(module, everywhere=False)) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("modules import each other: " + " <- ".join(error.args[1]))


def printed(code: str) -> str:
    """What a program prints in a process of its own."""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_light_modules_load_without_torch_and_ray() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {LIGHT!r}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "    assert not heavy, f'{name} imports {heavy}'\n"
    )
    assert printed(code) == ""


def test_the_first_trial_waits_for_neither_torch_nor_ray(tmp_path: Path) -> None:
    code = (
        "import sys, automl\n"
        "def objective(trial):\n"
        f"    if trial.number == 0: print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
        "    return trial.params['x']\n"
        "space = automl.Space(automl.Float('x', 0.0, 1.0))\n"
        "automl.sweep(objective, space, 'minimize loss', trials=1, dispatcher='inline',"
        f" store={str(tmp_path)!r})\n"
    )
    assert printed(code) == "[]\n"
