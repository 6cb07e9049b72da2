"""Hostile names, checkpoints, configurations and environments are refused and nothing is run."""

import ast
import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.core import SpecChanged, SweepSpec
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
OPTIONS = ("--objective", "mine.py:objective", "--dispatcher", "inline", "--trials", "2")
NAMES = [
    "..", ".", "../../etc/x", "/etc/x", "a\nb", "a\n", "a\0b", "-x", "--help-me",
    "\u202egnp.exe", "a\u2066b", "a\u200bb", "x" * 300, "a b", "a;b", "$(touch x)", "ä", "CON:",
    "a\\b", "%2e%2e", "a\r", "\ufeffa", "",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep `toy`."""
    folder = tmp_path_factory.mktemp("hostile") / "home"
    folder.mkdir()
    with chdir(folder):
        Path("toy.yaml").write_text(CONFIG)
        Path("mine.py").write_text(OBJECTIVE)
        done = automl("sweep", "toy.yaml", *OPTIONS)
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working directory, in which a test leaves no other file."""
    monkeypatch.chdir(made)
    before = files(made.parent)
    yield
    assert files(made.parent) == before


def automl(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def refused(*arguments: str) -> str:
    """What is said by a command that ends with status 2, not by an exception."""
    done = automl(*arguments)
    assert done.exit_code == 2, (arguments, done.output)
    assert isinstance(done.exception, SystemExit), (arguments, done.exception)
    return str(done.stderr)


def files(folder: Path) -> set[Path]:
    """All but those of SQLite and Python, which come and go."""
    own = ("-wal", "-shm", ".pyc", "__pycache__")
    return {path for path in folder.rglob("*") if not path.name.endswith(own)}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.usefixtures("folder")
def test_a_hostile_name_is_refused_everywhere(name: str) -> None:
    verbs = ("status", "trials", "best", "stop", "resume", "report", "delete --yes")
    given = [[*verb.split(), "--", name] for verb in verbs]
    given += [["logs", "--", name, "0"], ["sweep", "toy.yaml", *OPTIONS, f"--name={name}"]]
    given += [["sweep", "toy.yaml", *OPTIONS, f"name={json.dumps(name)}"]]
    for arguments in given:
        said = refused(*arguments)
        assert "\n" not in said.partition("Error: ")[2].strip(), "a name makes no line of its own"
        assert not set(said) & set("\u202e\u2066\u200b\0\r\ufeff"), "a name is shown, not obeyed"


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
def test_a_configuration_cannot_name_code_or_hold_a_password(
    folder: None, tmp_path: Path, line: str
) -> None:
    key = line.partition(":")[0]
    kept = [other for other in CONFIG.splitlines() if not other.startswith(f"{key}:")]
    (tmp_path / "hostile.yaml").write_text("\n".join([*kept, line]) + "\n")
    assert "hunter2" not in refused("sweep", f"{tmp_path}/hostile.yaml", *OPTIONS)


@pytest.mark.usefixtures("folder")
def test_a_ledger_cannot_name_code() -> None:
    """Names in a ledger are looked up among the installed ones; all else in it is data."""
    store = Ledger.open(".automl")
    spec = store.spec("toy").to_dict()
    names = {"suggester": "os.system", "stopper": "mine:objective", "workload": "mine.objective"}
    for key, value in names.items():
        store.append("toy", SpecChanged(SweepSpec.from_dict({**spec, key: value}).to_dict()))
        refused("resume", "toy", *OPTIONS[:-1], "9")
    store.append("toy", SpecChanged(spec))
    for change, error in (
        ({"constraints": ["__import__('os').getpid() > 0"]}, UsageError),
        ({"code": [1]}, TypeError),
    ):
        with pytest.raises(error):
            SweepSpec.from_dict({**spec, **change})


UNSAFE = {
    "eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "cloudpickle.loads",
    "cloudpickle.load", "torch.load", "yaml.load", "yaml.unsafe_load", "marshal.loads",
    "shelve.open", "os.system", "np.load", "numpy.load", "joblib.load",
}  # fmt: skip


def test_only_objects_of_this_process_are_unpickled_and_no_text_is_evaluated() -> None:
    found = {}
    for package in ("automl", "workers", "search_spaces"):
        for file in (ROOT / package).rglob("*.py"):
            calls = [
                one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.Call)
            ]
            used = {
                ast.unparse(call.func)
                for call in calls
                if not any(keyword.arg == "weights_only" for keyword in call.keywords)
            } & UNSAFE
            if "allow_pickle" not in file.read_text():  # numpy reads no pickles without it
                used -= {"np.load", "numpy.load"}
            if used:
                found[str(file.parent.relative_to(ROOT))] = used
    assert found == {"workers/runtime": {"pickle.load"}}
