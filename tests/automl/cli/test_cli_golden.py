"""What each verb prints on a small store, word for word: one golden file a verb.

`AUTOML_GOLDEN=write pytest tests/automl/cli/test_cli_golden.py` writes the files again.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_sweeps import CONFIG, OBJECTIVE, OWN, automl, ran

from automl.cli import COMMANDS

GOLDEN = Path(__file__).parent / "golden"
RUN = "--objective mine.py:objective --dispatcher inline"
LINES = {
    "init": ["init --no-run -o - -- python train.py --lr 0.1"],
    "sweep": [f"sweep toy.yaml {RUN} --dry-run", "sweep toy.yaml space.x=[0.0,y]"],
    "resume": [
        f"resume toy {RUN}",
        f"resume toy {RUN} --cwd . budget.trials=5 space.kind=good --json",
    ],
    "list": ["list", "list --json"],
    "status": ["status", "status toy --json"],
    "watch": ["watch toy"],
    "trials": ["trials", "trials toy --json"],
    "best": ["best", "best toy --json"],
    "logs": ["logs toy 0", "logs toy 9"],
    "report": ["report toy"],
    "stop": ["stop", "stop toy --trial 0"],
    "pause": ["pause toy 0", "pause toy 9"],
    "enqueue": ["enqueue toy x=0.25", "enqueue toy --trial 1", "enqueue toy y=1", "enqueue toy"],
    "set": [
        "set toy budget.trials=9 'space.x=[0.0,0.5]' space.kind=good workers=2",
        "set toy space.x=auto",
        "set toy budget.hours=3",
    ],
    "confirm": ["confirm toy"],
    "export": ["export toy -o model", "export toy -o model"],
    "ab": ["ab", "ab --metric loss -- a"],
    "speed": ["speed nothing.yaml"],
    "ask": ["ask toy", "ask served --json", "ask served"],
    "tell": [
        "ask served",
        "tell served 0 --step 1 loss=0.5 --json",
        "tell served 0 loss=0.4",
        "tell served 0 loss=0.4 --json",
        "tell served 0 --failed crashed",
    ],
    "space": ["space toy.yaml", "space toy.yaml --json"],
    "workloads": ["workloads", "workloads --fetch nothing"],
    "delete": ["delete toy --yes", "list"],
}
ELSEWHERE = {"studio", "mcp", "doctor", "launch"}  # they serve, or look at this machine
CHANGING = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE"),
    (r"\b\d+(\.\d+)?(e-\d+)? ?(ms|s|µs)\b", "TIME"),
    (r"\b\d+(\.\d+)? ?([kMG]?B)\b", "BYTES"),
    (
        r'"(\w*seconds|created|peak_memory_bytes|gain|mean|low|high|baseline_mean)": [-\d.e]+',
        r'"\1": N',
    ),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished sweep `toy`, and `served`, which agents serve."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "toy.yaml").write_text(CONFIG)
    (folder / "mine.py").write_text(OBJECTIVE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ran("sweep", "toy.yaml", *OWN, "--workers", "1")
        ran("sweep", "toy.yaml", "--create", "--name", "served")
    return folder


def test_every_verb_has_a_golden_file() -> None:
    assert set(LINES) | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize("verb", LINES)
def test_a_verb_prints_its_golden_output(
    verb: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it in its workers
    parts = []
    for line in LINES[verb]:
        done = automl(*shlex.split(line))
        assert done.exception is None or isinstance(done.exception, SystemExit)
        parts.append(f"$ automl {line}\n{done.stdout}[stderr]\n{done.stderr}[{done.exit_code}]\n")
    found = "\n".join(parts).replace(str(made), "FOLDER").replace(str(folder), "FOLDER")
    for pattern, word in CHANGING:
        found = re.sub(pattern, word, found)
    found = "\n".join(re.sub(r" +", " ", line).rstrip() for line in found.splitlines()) + "\n"
    file = GOLDEN / f"{verb}.txt"
    if os.environ.get("AUTOML_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(found)
    assert found == file.read_text()
