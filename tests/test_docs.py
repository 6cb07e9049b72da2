"""The documentation is true: its Python runs, its commands exist, the site has no broken link."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path

import click
import pytest
from pages import PAGES, blocks, shown
from sources import ROOT

import automl
from automl.cli import COMMANDS, cli

KEY = re.compile(r"^(\w+):", re.MULTILINE)
CASES = re.compile(r"`(test_\w+)`: ((?:`[^`]+`(?:, )?)+)")
LARGE = ("keras", "pytorch_lightning", "transformers")  # `make test-all` installs them
pytestmark = pytest.mark.usefixtures("frozen_heap")


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "python")], ids=shown)
def test_the_python_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of a page, one after the other in one module; the suggester is a quick one.

    A block that needs a large library is left out if that is not installed.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        automl, "sweep", partial(automl.sweep, suggester="sobol", dispatcher="inline")
    )
    monkeypatch.setattr(automl, "Optimizer", partial(automl.Optimizer, suggester="sobol"))
    names: dict[str, object] = {"__name__": "page"}
    for code in blocks(path, "python"):
        try:
            exec(compile(code, shown(path), "exec"), names)
        except ModuleNotFoundError as error:
            if error.name not in LARGE:
                raise


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "yaml")], ids=shown)
def test_the_configurations_load(path: Path, tmp_path: Path) -> None:
    """A block is a whole configuration, or replaces keys of the main one."""
    from automl import config

    for part in blocks(path, "yaml"):
        if part.startswith("defaults:"):  # of Hydra; tests/test_guides.py runs it
            continue
        whole = "budget:" in part and "space:" in part
        file = tmp_path / "nmt.yaml"
        file.write_text(part if whole else with_keys(part), encoding="utf-8")
        command = "python train.py" if "reports:" in part else ""
        loaded = config.load(file, objective=whole and not command, command=command)
        found = loaded.spec.to_dict() | {"store": loaded.store, "prior": loaded.prior}
        keys = KEY.findall(part)
        assert keys
        assert [key for key in keys if not found.get(key)] == []


def with_keys(part: str) -> str:
    """The main configuration with some of its keys replaced."""
    main = (ROOT / "configs" / "nmt.yaml").read_text(encoding="utf-8")
    keys = KEY.findall(part)
    kept = [
        section
        for section in re.split(r"^(?=\w)", main, flags=re.MULTILINE)
        if section.partition(":")[0] not in keys
    ]
    return "".join(kept) + "\n" + part


def test_the_first_example_has_at_most_twenty_lines() -> None:
    first = blocks(ROOT / "README.md", "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "console")], ids=shown)
def test_the_commands_are_understood(path: Path) -> None:
    """Verbs, options and arguments are parsed; tests/test_guides.py runs those of the start."""
    for line in "\n".join(blocks(path, "console")).replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if "automl" not in words:
            continue
        words = words[words.index("automl") + 1 :]
        assert words[0] in COMMANDS, line
        command = cli.get_command(click.Context(cli), words[0])
        while isinstance(command, click.Group):
            words = words[1:]
            command = command.commands[words[0]]
        assert command is not None
        try:
            command.make_context(words[0], words[1:]).close()
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_the_site_builds_without_a_broken_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)  # strict: a warning is an error
    finally:
        config.plugins.on_shutdown()
    pages = {
        name: (tmp_path / "site" / "reference" / name / "index.html").read_text(encoding="utf-8")
        for name in ("python", "command-line", "configuration")
    }
    assert "LedgerStorage" in pages["python"]
    assert "https://fonts" not in pages["python"]
    assert all(f"automl {verb}" in pages["command-line"] for verb in COMMANDS)
    assert 'id="max_retries"' in pages["configuration"]


def test_the_tests_that_durability_names_exist() -> None:
    """The page names tests as: `test_file`: `start_of_the_name…`, `…end_of_the_name`."""
    text = (ROOT / "docs" / "internals" / "durability.md").read_text(encoding="utf-8")
    cases = {
        file: [case for path in (ROOT / "tests").rglob(f"{file}.py") for case in defined(path)]
        for file in re.findall(r"`(test_\w+)`", text)
    }
    assert [file for file, found in cases.items() if not found] == []
    for file, names in CASES.findall(text):
        for name in re.findall(r"`([^`]+)`", names):
            pattern = re.compile(name.replace("…", r"\w*"))
            assert any(pattern.fullmatch(case) for case in cases[file]), f"{file}: {name}"


def defined(path: Path) -> list[str]:
    """The names of the tests in a file, without `test_`."""
    return re.findall(r"^def test_(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
