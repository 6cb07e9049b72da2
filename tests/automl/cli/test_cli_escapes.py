"""Escape sequences of a ledger, a configuration or a log do not reach the terminal."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from automl.cli import cli
from automl.core.events import Begun, Closed, Ended, Noted, Proposed, SweepEvent
from automl.core.goals import Goal
from automl.core.spec import SweepSpec
from automl.core.trial import TrialState
from automl.ledger import Ledger
from automl.ledger.database import FILE_NAME
from search_spaces import Choice, Space
from workers.protocol import LOGS, Ending, Outcome

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"
SPACE = Space(Choice("data", ["plain", "b\x1b[2J"]))
FORBIDDEN = set("\x1b\x07\x9b\u202e")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A sweep with escape sequences in values, metrics, messages, notes and logs."""
    folder = tmp_path_factory.mktemp("runs")
    ledger = Ledger.open(folder, create=True)
    ledger.create_sweep(SweepSpec("toy", SPACE, (Goal("loss"),)))
    recorder = ledger.hold("toy")
    metrics = {"loss": 1.0, f"m{HOSTILE}": 2.0}
    done = Outcome(0, 1, Ending.COMPLETED, metrics, seconds=0.02)
    failed = Outcome(1, 1, Ending.FAILED, failure="crashed", message=HOSTILE, seconds=0.02)
    events: list[SweepEvent] = [Noted("fallback", HOSTILE, at=0.0)]
    for outcome, state in ((done, TrialState.COMPLETED), (failed, TrialState.FAILED)):
        number = outcome.trial
        events += [
            Proposed(number, {"data": "b\x1b[2J"}, "bayes"),
            Begun(number, 1, at=0.0),
            Ended(outcome, state, outcome.failure, outcome.message, at=1.0),
        ]
    for event in events:
        recorder.apply(event)
    recorder.apply(Closed("finished"))
    recorder.commit(2.0)
    logs = (ledger.files("toy") / "trials" / "0" / LOGS).path
    ledger.close()
    logs.mkdir(parents=True)
    (logs / "attempt-1-rank-0.log").write_text(f"10%\r20%\r\n\x1b[32mgreen\x1b[0m {HOSTILE}\n")
    return str(folder)


@pytest.mark.parametrize(
    "words",
    ["best toy", "best toy --json", "trials toy", "trials toy --json", "status toy", "logs toy 0"],
)
def test_no_verb_prints_control_characters(store: str, words: str) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--store", store])
    assert done.exit_code == 0, done.output
    assert not FORBIDDEN & set(done.output)
    assert "\\u001b" in done.output
    if "--json" in words:
        found = json.loads(done.output)
        assert (found if isinstance(found, dict) else found[0])["params"] == {"data": "b\x1b[2J"}
    if words.startswith("logs"):
        assert done.output.startswith("10%\n20%\ngreen ")


def test_the_name_of_the_newest_sweep_prints_none(store: str, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "s")
    ledger = Ledger.open(tmp_path / "s")
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "s" / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE sweeps SET name = ?", [HOSTILE])
    done = CliRunner().invoke(cli, ["status", "--store", str(tmp_path / "s")])
    assert done.exit_code == 2
    assert not FORBIDDEN & set(done.output)


def test_an_error_message_prints_none(store: str) -> None:
    done = CliRunner().invoke(cli, ["status", f"x{HOSTILE}", "--store", store])
    assert done.exit_code == 2
    assert not FORBIDDEN & set(done.output)
