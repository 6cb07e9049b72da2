"""The pages for users: what they show is run, and what they list is all there is."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pages import blocks, shown
from sources import MODULES, ROOT

from automl.cli import cli
from scripts.docs_hook import commands, fill

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    *(page for name in ("start", "guides", "reference") for page in (DOCS / name).glob("*.md")),
]
RUN = {"python", "yaml", "console"}  # test_docs.py runs, loads or checks these
FENCE = re.compile(r"^([^\n]*\n)```(\w*)[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
TRAINS = ("sweep", "resume", "confirm")


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    text = fill(page.read_text(encoding="utf-8")) if "reference" not in page.parts else ""
    silent = [
        kind or "(no language)"
        for before, kind in FENCE.findall(text)
        if kind not in RUN and not re.match(r"<!-- (not run|run by tests/\S+\.py)", before)
    ]
    assert silent == []


@pytest.mark.parametrize("name", ["start/function.md", "start/script.md"])
def test_the_commands_of_the_start_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the suggester `sobol` and without Ray, which is quicker; three trials each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)  # noqa: PTH120
    write_files(DOCS / name, tmp_path)
    lines = "".join(blocks(DOCS / name, "console")).splitlines()
    for line in lines:
        words = shlex.split(line.removeprefix("$ automl "))
        if words[0] == "init" and "mine.yaml" in words:
            words[words.index("mine.yaml")] = "other.yaml"  # the page's own is there already
        if words[0] in TRAINS:
            words[1:1] = ["--dispatcher", "inline"]
        if words[0] == "sweep":
            words[3:3] = ["--trials", "3"]
            words.insert(words.index("mine.yaml") + 1, "suggester=sobol")
        if words[0] == "resume":
            words[words.index("--trials") + 1] = "4"
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert len(lines) > 3


def test_the_hydra_program_runs(tmp_path: Path) -> None:
    pytest.importorskip("hydra", reason="install automl-sweep[hydra]")
    page = DOCS / "guides" / "hydra.md"
    write_files(page, tmp_path)
    line = next(line for line in "".join(blocks(page, "console")).splitlines() if " -m " in line)
    words = [sys.executable, *shlex.split(line)[2:], "hydra.sweeper.suggester=sobol"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("optimization_results.yaml"))


def write_files(page: Path, folder: Path) -> None:
    """Write the blocks of a page that have a title."""
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")


def test_the_messages_of_the_troubleshooting_exist() -> None:
    """A heading is a message of the program, with `…` for its values."""
    page = (DOCS / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    known = list(messages())
    unknown = [
        part.strip()
        for heading in re.findall(r"^### `(.+)`$", page, re.MULTILINE)
        for part in heading.split("…")
        if len(part.split()) > 1 and not any(part.strip(" ()") in text for text in known)
    ]
    assert unknown == []
    assert len(known) > 1000


def messages() -> Iterator[str]:
    """The texts of the source; a value in one of them is a NUL character."""
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", "\0") for part in node.values)
                yield "".join(part if isinstance(part, str) else "\0" for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_installation_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "start" / "install.md").read_text(encoding="utf-8")
    rows = "".join(re.findall(r"^\| (`.+?) \|", page, re.MULTILINE))
    assert set(re.findall(r"`([\w-]+)`", rows)) == set(project["optional-dependencies"])


def test_the_groups_of_extensions_exist() -> None:
    from automl.stopping import STOPPERS
    from automl.suggesters import SUGGESTERS
    from automl.trackers import TRACKERS
    from search_spaces.knobs import KNOBS
    from workers.parallel import STRATEGIES
    from workers.workloads import WORKLOADS

    registries = (STOPPERS, SUGGESTERS, TRACKERS, KNOBS, STRATEGIES, WORKLOADS)
    page = (DOCS / "guides" / "plugins.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w ]+ \| `([\w.]+)` \| `([\w.]+)` \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((one.group, one.base.replace(":", ".")) for one in registries)


def test_the_help_of_the_verbs_has_no_marks_of_its_source() -> None:
    assert "\\b" not in commands()
