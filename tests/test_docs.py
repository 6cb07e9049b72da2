"""What the pages show is run: Python, configurations, commands."""

import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pages import PAGES, blocks, shown, write_files
from sources import ROOT

import automl
from automl.cli import COMMANDS, cli

KEY = re.compile(r"^(\w+):", re.MULTILINE)
LARGE = ("pytorch_lightning", "transformers")  # `make test-all` installs them
TRAINS = ("sweep", "resume", "confirm")
pytestmark = pytest.mark.usefixtures("frozen_heap")


def showing(language: str) -> list[Path]:
    return [path for path in PAGES if blocks(path, language)]


@pytest.mark.parametrize("path", showing("python"), ids=shown)
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


@pytest.mark.parametrize("path", showing("yaml"), ids=shown)
def test_the_configurations_load(path: Path, tmp_path: Path) -> None:
    """A block is a whole configuration, or replaces keys of the main one."""
    from automl import config

    for part in blocks(path, "yaml"):
        whole, file = "budget:" in part and "space:" in part, tmp_path / "nmt.yaml"
        file.write_text(part if whole else with_keys(part), encoding="utf-8")
        command = "python train.py" if "reports:" in part else ""
        loaded = config.load(file, objective=whole and not command, command=command)
        prior = loaded.prior or loaded.spec.knowledge.prior or loaded.spec.knowledge.learns
        found = loaded.spec.to_dict() | {"store": loaded.store, "prior": prior}
        assert [key for key in KEY.findall(part) if not found.get(key)] == []


def with_keys(part: str) -> str:
    """The main configuration with some of its keys replaced."""
    main = (ROOT / "configs" / "nmt.yaml").read_text(encoding="utf-8")
    sections = re.split(r"^(?=\w)", main, flags=re.MULTILINE)
    given = KEY.findall(part)
    return "".join(one for one in sections if one.partition(":")[0] not in given) + "\n" + part


@pytest.mark.parametrize("path", showing("console"), ids=shown)
def test_the_commands_are_understood(path: Path) -> None:
    """Verbs, options and arguments are parsed."""
    for line in "\n".join(blocks(path, "console")).replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if "automl" not in words:
            continue
        words = words[words.index("automl") + 1 :]
        assert words[0] in COMMANDS, line
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None
        while isinstance(command, click.Group):
            words = words[1:]
            command = command.commands[words[0]]
        try:
            command.make_context(words[0], words[1:]).close()
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_the_commands_of_the_start_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the suggester `sobol` and without Ray, which is quicker; three trials each.

    The commands of workloads are left out: they train for minutes.
    """
    page = ROOT / "docs" / "start" / "five-minutes.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)  # noqa: PTH120
    write_files(page, tmp_path)
    lines = "".join(blocks(page, "console")).splitlines()
    lines = [line for line in lines if re.search(r"mine|program", line)]
    for line in lines:
        words = shlex.split(line.removeprefix("$ automl "))
        if words[0] in TRAINS:
            words[1:1] = ["--dispatcher", "inline"]
        if words[0] == "sweep":
            words[3:4] = ["--trials", "3", words[3], "suggester=sobol"]
        if words[0] == "resume":
            words[words.index("--trials") + 1] = "4"
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert len(lines) > 7
