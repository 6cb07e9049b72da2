"""Hostile names, checkpoints, configurations and environments are refused and nothing is run."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.core import SpecChanged
from automl.core.spec import SweepSpec
from automl.errors import UsageError
from automl.ledger import Ledger

ROOT = Path(__file__).parents[1]
CONFIG = (
    "name: toy\n"
    "space: {x: {low: 0.0, high: 1.0, default: 0.5}}\n"
    "goals: minimize loss\n"
    "suggester: sobol\n"
)
OBJECTIVE = "def objective(trial):\n    return {'loss': trial.params['x']}\n"
SWEEP = (
    *("sweep", "toy.yaml", "--objective", "mine.py:objective"),
    *("--dispatcher", "inline", "--trials", "2"),
)
NAMES = [
    "..", ".", "../../etc/x", "/etc/x", "a\nb", "a\n", "a\0b", "-x", "--help-me",
    "\u202egnp.exe", "a\u2066b", "a\u200bb", "x" * 300, "a b", "a;b", "$(touch x)", "ä", "CON:",
    "a\\b", "%2e%2e", "a\r", "\ufeffa", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep `toy` in a folder `home`."""
    folder, before = tmp_path_factory.mktemp("hostile"), Path.cwd()
    (folder / "home").mkdir()
    os.chdir(folder / "home")
    Path("toy.yaml").write_text(CONFIG)
    Path("mine.py").write_text(OBJECTIVE)
    done = automl(*SWEEP)
    os.chdir(before)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made / "home")
    return made


def automl(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def files(folder: Path) -> set[str]:
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }
    return {
        name for name in found if not name.endswith(("-wal", "-shm"))
    }  # of SQLite, they come and go


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_hostile_name_is_refused_everywhere(folder: Path, name: str) -> None:
    before = files(folder)
    options = ["--objective", "mine.py:objective", "--dispatcher", "inline", "--trials", "1"]
    given = [
        ["sweep", "toy.yaml", *options, f"--name={name}"],
        ["sweep", "toy.yaml", *options, f"name={json.dumps(name)}"],
    ]
    given += [
        [verb, "--", name] for verb in ("status", "trials", "best", "stop", "resume", "report")
    ]
    given += [
        ["delete", "--yes", "--", name],
        ["logs", "--", name, "0"],
    ]
    for arguments in given:
        done = automl(*arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert isinstance(done.exception, SystemExit), (arguments, done.exception)
        assert "\n" not in done.stderr.partition("Error: ")[2].strip(), (
            "a name makes no line of its own"
        )
        assert not set(done.stderr) & set("\u202e\u2066\u200b\0\r\ufeff"), (
            "a name is shown, not obeyed"
        )
    assert files(folder) == before


HOSTILE = [
    "workload: os.system",
    "workload: ../../mine",
    "workload: automl.cli",
    "suggester: mine.objective",
    "stopper: os:system",
    'constraints: [\'__import__("os").system("touch trap") == 0\']',
    "constraints: ['().__class__.__bases__[0].__subclasses__() == 1']",
    "constraints: ['9**9**9**9 > x']",
    "space: {x: {low: !!python/object/apply:os.system ['touch trap'], high: 1}}",
    "space: {x: {low: 0, high: 1, when: 'os.system'}}",
    "store: postgresql://me:hunter2@127.0.0.1/x",
    "store: postgresql://127.0.0.1/x?password=hunter2",
    "store: 'http://['",
    'store: "a\\0b"',
]


@pytest.mark.parametrize("line", HOSTILE)
def test_a_configuration_cannot_name_code_or_hold_a_password(folder: Path, line: str) -> None:
    key = line.partition(":")[0]
    kept = [other for other in CONFIG.splitlines() if not other.startswith(f"{key}:")]
    Path("hostile.yaml").write_text("\n".join([*kept, line]) + "\n")
    before = files(folder)
    done = automl(
        "sweep",
        "hostile.yaml",
        "--objective",
        "mine.py:objective",
        "--dispatcher",
        "inline",
        "--trials",
        "1",
    )
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert "hunter2" not in done.output + done.stderr
    assert files(folder) == before


def test_a_ledger_cannot_name_code(folder: Path) -> None:
    """Names in a ledger are looked up among the installed ones; all else in it is data."""
    store = Ledger.open(".automl")
    for key, value in (
        ("suggester", "os.system"),
        ("stopper", "mine:objective"),
        ("workload", "mine.objective"),
    ):
        spec = store.spec("toy").to_dict()
        store.append("toy", SpecChanged(SweepSpec.from_dict({**spec, key: value}).to_dict()))
        done = automl(
            "resume",
            "toy",
            "--trials",
            "9",
            "--objective",
            "mine.py:objective",
            "--dispatcher",
            "inline",
        )
        assert done.exit_code == 2, (key, done.output)
        assert isinstance(done.exception, SystemExit)
        store.append("toy", SpecChanged(SweepSpec.from_dict(spec).to_dict()))
    spec = store.spec("toy").to_dict()
    with pytest.raises(UsageError):
        SweepSpec.from_dict({**spec, "constraints": ["__import__('os').getpid() > 0"]})


def calls(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            weights_only = any(keyword.arg == "weights_only" for keyword in node.keywords)
            found.add(f"{name} weights_only" if weights_only else name)
    return found


UNSAFE = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "cloudpickle.loads",
    "cloudpickle.load", "torch.load", "yaml.load", "yaml.unsafe_load", "marshal.loads",
    "shelve.open", "os.system", "np.load", "numpy.load", "joblib.load",
}  # fmt: skip


def test_only_objects_of_this_process_are_unpickled_and_no_text_is_evaluated() -> None:
    found = {}
    for package in ("automl", "workers", "search_spaces"):
        for file in (ROOT / package).rglob("*.py"):
            tree = ast.parse(file.read_text())
            used = calls(tree) & UNSAFE
            if used and not harmless(file, used):
                found[str(file.parent.relative_to(ROOT))] = used
    assert found == {
        "workers/runtime": {"pickle.load"},
    }


def harmless(file: Path, used: set[str]) -> bool:
    """numpy reads pickles only if it is called with `allow_pickle`."""
    return used <= {"np.load", "numpy.load"} and "allow_pickle" not in file.read_text()
