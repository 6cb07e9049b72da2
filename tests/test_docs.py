"""The documentation is true: its Python runs, the commands that it shows exist, its links lead somewhere."""

from __future__ import annotations

import gc
import re
import shlex
from functools import partial
from pathlib import Path

import click
import pytest

import automl
from automl.cli import COMMANDS, cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Each trial collects garbage before it measures memory; what torch has imported need not be looked at again."""
    import torch

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def blocks(path: Path, language: str) -> list[str]:
    return [
        code for kind, code in BLOCK.findall(path.read_text(encoding="utf-8")) if kind == language
    ]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "python")], ids=shown)
def test_the_python_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of a page, one after the other in one module; the suggester is a quick one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        automl, "sweep", partial(automl.sweep, suggester="sobol", dispatcher="inline")
    )
    monkeypatch.setattr(automl, "Optimizer", partial(automl.Optimizer, suggester="sobol"))
    names: dict[str, object] = {"__name__": "page"}
    for code in blocks(path, "python"):
        exec(compile(code, shown(path), "exec"), names)


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "yaml")], ids=shown)
def test_the_configurations_load(path: Path, tmp_path: Path) -> None:
    """Each block as a part of the main configuration."""
    from automl import config

    for part in blocks(path, "yaml"):
        file = tmp_path / "nmt.yaml"
        file.write_text((ROOT / "configs" / "nmt.yaml").read_text(encoding="utf-8") + part)
        assert config.load(file).spec.beliefs


def test_twenty_lines_are_enough() -> None:
    first = blocks(ROOT / "README.md", "python")[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "console")], ids=shown)
def test_the_commands_exist(path: Path) -> None:
    for line in "\n".join(blocks(path, "console")).splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if "automl" not in words:
            continue
        verb, *rest = words[words.index("automl") + 1 :]
        assert verb in COMMANDS, line
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        if isinstance(command, click.Group):
            assert rest[0] in command.commands, line
            command = command.commands[rest[0]]
        known = {
            name
            for parameter in command.params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        assert [
            word for word in rest if word.startswith("--") and word.split("=")[0] not in known
        ] == [], line


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
    page = (tmp_path / "site" / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    assert "LedgerStorage" in page
    assert "https://fonts" not in page
    commands = (tmp_path / "site" / "reference" / "command-line" / "index.html").read_text(
        encoding="utf-8"
    )
    assert all(f"automl {verb}" in commands for verb in COMMANDS)


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
