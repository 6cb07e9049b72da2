"""The public names can be imported, are documented, and take the arguments of the contract."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sources import ROOT

import automl
import search_spaces

PUBLIC = [(module, name) for module in (automl, search_spaces) for name in module.__all__]
CALLABLE = [
    (module, name)
    for module, name in PUBLIC
    if not (inspect.isclass(getattr(module, name)) and issubclass(getattr(module, name), Exception))
]
SETTINGS = "goals constraints suggester stopper workers trials budget store seed"
CALLS = [
    (
        automl.sweep,
        2,
        f"{SETTINGS} dispatcher resources name resume prior enqueue progress",
    ),
    (automl.load, 1, "store"),
    (automl.Optimizer, 1, "goals constraints suggester seed store"),
    (automl.Optimizer.ask, 1, ""),
    (automl.Optimizer.tell, 3, ""),
    (automl.Optimizer.fail, 3, ""),
    (automl.Optimizer.add, 3, ""),
    (automl.Optimizer.add, 2, "failure"),
    (automl.simulate, 2, f"{SETTINGS} seconds max_steps charge_suggestions"),
    (search_spaces.Space, 3, "constraints"),
    (search_spaces.Float, 3, "log default affects when"),
    (search_spaces.Int, 3, "log default affects when"),
    (search_spaces.Choice, 2, "ordered default affects when"),
]


def called(value: Any) -> str:
    return str(getattr(value, "__name__", value))


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=called)
def test_a_public_name_can_be_imported_and_is_in_the_reference(module: Any, name: str) -> None:
    found = getattr(module, name)
    assert found.__module__.startswith(("automl", "search_spaces", "workers"))
    assert inspect.getdoc(found)
    assert name in dir(module)
    reference = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert re.search(rf"^(:::|.*members:).*\b{name}\b", reference, re.MULTILINE)


@pytest.mark.parametrize(("module", "name"), CALLABLE, ids=called)
def test_every_argument_is_documented(module: Any, name: str) -> None:
    public = getattr(module, name)
    documented = [public, *getattr(public, "__mro__", ())]
    if inspect.isclass(public):
        documented.append(public.__init__)
    text = "".join(inspect.getdoc(part) or "" for part in documented)
    arguments = inspect.signature(public).parameters
    assert [name for name in arguments if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(("function", "positional", "keywords"), CALLS, ids=called)
def test_the_calls_of_the_contract_are_accepted(
    function: Any, positional: int, keywords: str
) -> None:
    given = dict.fromkeys(keywords.split())
    assert inspect.signature(function).bind(*range(positional), **given)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'swep'"):
        _ = automl.swep  # type: ignore[attr-defined]


# What a sweep does without: extras, and any machine but this one.

PROGRAM = "import sys; print('loss:', (float(sys.argv[1]) - 0.3) ** 2)"
CONFIG = """
name: line
goals: minimize loss
reports: {loss: 'loss: (\\S+)'}
space: {x: {low: -1.0, high: 1.0}}
budget: {trials: 4}
workers: 2
"""
COMMAND = ("--", sys.executable, "program.py", "{x}")  # to be tuned with line.yaml

# What the main interfaces do without, by the name of its import.
ABSENT = (
    "ray", "ax", "optuna", "alembic", "psycopg", "pandas", "plotly", "s3fs", "PIL",
    "sklearn", "lightning", "transformers", "mlflow", "wandb", "tensorboard", "onnx",
)  # fmt: skip
# Read by every Python that the sweep starts, too: each connection and each name that is looked up
# is written to a file, and what is not of this machine fails.
SITE = (
    f"""
import os, sys
from importlib.machinery import PathFinder

class Base(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            return None
        return super().find_spec(name, path, target)

sys.meta_path[:] = [Base if finder is PathFinder else finder for finder in sys.meta_path]
"""
    + """
def guard(event, given):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = given[-1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
        address = given[0] if event != "socket.bind" else given[1]
    else:
        return
    host = address[0] if isinstance(address, tuple) and address else address
    host = host.decode() if isinstance(host, bytes) else host
    if not isinstance(host, str) or host.startswith(("/", chr(0))):  # within this machine
        return
    outside = host not in ("127.0.0.1", "::1", "localhost")
    with open(os.environ["GUARD_LOG"], "a") as log:
        log.write(f"{'OUTSIDE' if outside else 'here'} {event} {host!r} {sys.argv[:3]}\\n")
    if outside:
        raise OSError(f"{event} of {host!r} is not allowed")

sys.addaudithook(guard)
with open(os.environ["GUARD_LOG"], "a") as log:
    log.write("guarded\\n")
"""
)
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
LACKING = (
    ("suggester=tpe", "the suggester 'tpe' needs optuna: pip install automl-sweep"),
    ("suggester=ax", "the suggester 'ax' needs ax: pip install automl-sweep"),
    ("--dispatcher=ray", "the dispatcher 'ray' needs ray: pip install"),
    ("--ray-address=auto", "the dispatcher 'ray' needs ray: pip install"),
    (
        "--store=postgresql://host/name",
        "a store that is a URL needs psycopg: pip install 'automl-sweep[postgres]'",
    ),
)
REFUSED = f"""
from click.testing import CliRunner
from automl.cli import cli
for words in {[words for words, _ in LACKING]!r}:
    done = CliRunner().invoke(cli, ["sweep", "line.yaml", words, *{COMMAND!r}])
    print(done.exit_code, done.output)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files to run; Python finds nothing there of what extras bring."""
    (tmp_path / "site").mkdir()
    files = {"site/sitecustomize": SITE, "mine": INLINE, "program": PROGRAM}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "line.yaml").write_text(CONFIG)
    return tmp_path


def guarded(folder: Path, *words: str, status: int = 0) -> tuple[str, list[str]]:
    """What a program prints, and what the guard has seen of it and of all that it starts."""
    paths = os.pathsep.join((str(folder / "site"), str(ROOT)))
    variables = {"PYTHONPATH": paths, "RAY_ADDRESS": "", "GUARD_LOG": str(folder / "guard.log")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == status, done.stderr
    seen = (folder / "guard.log").read_text().splitlines()
    assert "guarded" in seen
    return done.stdout + done.stderr, [line for line in seen if line != "guarded"]


def test_the_python_interface_needs_no_extra_and_connects_to_nothing(folder: Path) -> None:
    assert guarded(folder, "mine.py")[1] == []
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_sweep_of_a_command_needs_no_extra_and_connects_to_nothing_outside(folder: Path) -> None:
    local = ("--dispatcher", "local", *COMMAND)
    _, seen = guarded(folder, "-m", "automl", "sweep", "line.yaml", *local)
    assert [line for line in seen if not line.startswith("here ")] == []
    assert (folder / "guard.log").read_text().count("guarded") > 4, "workers and programs, too"
    assert "4 of 4" in guarded(folder, "-m", "automl", "status", "line")[0]


def test_what_needs_an_extra_says_which(folder: Path) -> None:
    (folder / "mine.py").write_text(REFUSED)
    told, _ = guarded(folder, "mine.py")
    assert told.count("2 Error: ") == len(LACKING)
    for _, message in LACKING:
        assert message in told
    assert "Traceback" not in told
    assert not (folder / ".automl").exists()


def test_the_guard_sees_a_connection(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=1)\n"
    )
    _, (first, *_) = guarded(folder, "mine.py", status=1)
    assert first.startswith("OUTSIDE socket.getaddrinfo '192.0.2.1'")
