"""A project of a plugin is written in one command, and the suites run for what it installs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sources import MODULES, ROOT


def run(
    folder: Path, *words: str, paths: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # this environment may know ours already
        },
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, and what it installs in the folder `site` beside it."""
    folder = tmp_path_factory.mktemp("plugin")
    made = run(folder, "-m", "automl.conformance", "mine")
    assert "pytest --automl-conformance" in made.stdout, made.stderr
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    done = run(folder, *pip, "--target", str(folder / "site"), "./mine")
    assert done.returncode == 0, done.stderr
    return folder / "mine"


def conformance(project: Path, *words: str) -> str:
    plugin = ("-p", "automl.conformance.plugin", "-p", "no:cacheprovider")
    return run(
        project, "-m", "pytest", *plugin, "-v", *words, paths=(project.parent / "site",)
    ).stdout


IN_EVERY_RUN = (
    "test_three_are_found_by_their_names",
    "test_legal_and_new[uniform-tree]",
    "test_every_stopper_decides_the_same_again[patience]",
    "test_its_default_trains_and_leaves_nothing_behind[noise]",
    "test_odd_trials_are_written[json-file]",
)
THAT_TRAIN = (
    "test_every_legal_value_runs_a_step[line]",
    "test_its_weights_are_those_of_single[mirror]",
)


@pytest.mark.parametrize(
    ("chosen", "tests"), [("not line and not mirror", IN_EVERY_RUN), ("line or mirror", THAT_TRAIN)]
)
def test_the_template_passes_its_own_tests_and_the_suites(
    project: Path, chosen: str, tests: tuple[str, ...]
) -> None:
    if tests is THAT_TRAIN and "AUTOML_TEST_ALL" not in os.environ:
        pytest.skip("takes a minute: make test-all")
    told = conformance(project, "--automl-conformance", "-k", chosen)
    last = told.splitlines()[-1]
    assert re.fullmatch(r"=+ \d+ passed(, 1 skipped)?, \d+ deselected.* in .*", last), told[-3000:]
    for test in tests:
        assert f"{test} PASSED" in told


MISTAKES = {
    "suggester": ("new[:count]", "new[:1] * count", "test_differs_from_pending_and_itself"),
    "workload": ("torch.manual_seed(self.seed)", "torch.seed()", "test_a_seed_makes_a_run"),
    "knob": ('"weight_noise"', '"dropout"', "test_its_options_are_its_own"),
    "tracker": ("dumps(line)", "dumps(line, allow_nan=False)", "test_odd_trials_are_written"),
}


def test_mistakes_fail_the_suites(project: Path) -> None:
    texts = {}
    for kind, (good, bad, _) in MISTAKES.items():
        module = project / "my_plugin" / f"{kind}.py"
        texts[module] = module.read_text()
        assert good in texts[module]
        module.write_text(texts[module].replace(good, bad))
    tests = [test for _, _, test in MISTAKES.values()]
    try:
        told = conformance(project, "--automl-conformance", "-k", " or ".join(tests))
    finally:
        for module, text in texts.items():
            module.write_text(text)
    for test in tests:
        assert re.search(rf"{test}\[\S+\] FAILED", told), told[-3000:]


def test_without_the_option_nothing_is_added(project: Path) -> None:
    assert "1 passed" in conformance(project).splitlines()[-1]


def test_without_an_extension_the_option_is_refused(project: Path) -> None:
    words = ("-m", "pytest", "-p", "automl.conformance.plugin", "--automl-conformance")
    done = run(project.parent, *words)
    assert done.returncode == 4
    assert "ERROR: no installed package has an entry point of automl.suggesters" in done.stderr


def test_the_template_overwrites_nothing(project: Path) -> None:
    again = run(project.parent, "-m", "automl.conformance", "mine")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "Error: mine cannot be made: File exists\n"


def test_pytest_finds_the_plugin_of_an_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert module in MODULES
    assert "plugin-tests" in project["optional-dependencies"]
