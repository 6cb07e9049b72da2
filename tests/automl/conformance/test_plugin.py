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


def test_the_template_passes_its_own_tests_and_the_suites(project: Path) -> None:
    told = conformance(project, "--automl-conformance")
    last = told.splitlines()[-1]
    assert re.fullmatch(r"=+ \d+ passed.* in .*", last), told[-3000:]
    assert "test_both_are_found_by_their_names PASSED" in told
    assert "test_legal_and_new[uniform-tree] PASSED" in told
    assert "test_every_stopper_decides_the_same_again[patience] PASSED" in told


def test_a_suggester_that_repeats_itself_fails_the_suite(project: Path) -> None:
    module = project / "my_plugin.py"
    good = module.read_text()
    module.write_text(good.replace("new[:count]", "new[:1] * count"))
    try:
        told = conformance(project, "--automl-conformance", "-k", "differs_from")
    finally:
        module.write_text(good)
    assert "test_differs_from_pending_and_itself[uniform] FAILED" in told, told[-3000:]


def test_without_the_option_nothing_is_added(project: Path) -> None:
    assert "1 passed" in conformance(project).splitlines()[-1]


def test_the_template_overwrites_nothing(project: Path) -> None:
    again = run(project.parent, "-m", "automl.conformance", "mine")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "Error: mine cannot be made: File exists\n"


def test_pytest_finds_the_plugin_of_an_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert module in MODULES
    assert "plugin-tests" in project["optional-dependencies"]
