"""The dispatcher `local` alone: its processes, their children, and what they load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from driver import Driver, behave

from automl.core.resources import Resources
from automl.dispatch.local import LocalDispatcher
from automl.errors import AutomlError
from workers.context import Context
from workers.protocol import Ending

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    dispatcher = LocalDispatcher("driver", 1, Resources(), objective=behave)
    yield Driver(dispatcher, tmp_path, 0)
    dispatcher.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("dies", [True, False])
def test_what_the_objective_has_started_ends_with_its_worker(driver: Driver, dies: bool) -> None:
    number = driver.submit("child", dies=dies)
    if not dies:
        driver.until(lambda: bool(driver.reports(number)))
        started = (driver.folder / str(number) / "child").read_text()
        scores = [int(Path(f"/proc/{one}/oom_score_adj").read_text()) for one in ("self", started)]
        assert scores[0] < scores[1], "the kernel must not prefer the controller"
        driver.dispatcher.kill(number, 1, "timeout", "too long")
    outcome = driver.finish(number)
    assert outcome.failure == ("crashed" if dies else "timeout")
    child = int((driver.folder / str(number) / "child").read_text())
    until(lambda: not is_alive(child))


def test_a_message_that_cannot_be_read_ends_its_worker_only(driver: Driver) -> None:
    outcome = driver.finish(driver.submit("garble"))
    assert outcome.failure == "crashed"
    assert outcome.message.endswith("sent a message that cannot be read")
    driver.rest()
    assert driver.finish(driver.submit("print_late")).ending is Ending.COMPLETED


def test_a_controller_killed_with_9_takes_its_workers_along(tmp_path: Path) -> None:
    """The file at which the ranks met, too."""
    marks = tmp_path / "marks"
    script = tmp_path / "script.py"
    script.write_text(
        "import os, subprocess, time\n"
        "import automl\n"
        "from search_spaces import Float, Space\n\n"
        "def objective(trial):\n"
        "    child = subprocess.Popen(['sleep', '1000'])\n"
        f"    with open({str(marks)!r}, 'a') as file:\n"
        "        file.write(f'{os.getpid()} {child.pid} ')\n"
        "    while trial.report(step=0, loss=1.0):\n"
        "        time.sleep(0.05)\n"
        "    return {'loss': 1.0}\n\n"
        "automl.sweep(objective, Space(Float('x', 0, 1)), 'minimize loss', trials=4, workers=2,\n"
        "             ranks=2, suggester='random', dispatcher='local',\n"
        f"             store={str(tmp_path / 'store')!r})\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    controller = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "TMPDIR": str(temporary)}
    )
    until(lambda: marks.exists() and len(marks.read_text().split()) == 4)
    pids = list(map(int, marks.read_text().split()))
    assert all(map(is_alive, pids))
    assert list(temporary.glob("automl-meeting-*"))
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    until(lambda: not any(map(is_alive, pids)))
    assert not list(temporary.glob("automl-meeting-*"))


def test_a_worker_loads_nothing_that_its_objective_does_not_need(tmp_path: Path) -> None:
    def objective(trial: Context) -> dict[str, float]:
        heavy = {"torch", "ray", "sqlalchemy", "botorch", "automl"} & set(sys.modules)
        assert not heavy, heavy
        return {"loss": 1.0, "is_leader": float(os.getpid() == os.getsid(0))}

    dispatcher = LocalDispatcher("driver", 1, Resources(), objective=objective)
    driver = Driver(dispatcher, tmp_path, 0)
    try:
        outcome = driver.finish(driver.submit("nothing"))
    finally:
        dispatcher.close()
    assert outcome.metrics == {"loss": 1.0, "is_leader": 1.0}, outcome.message


def test_workers_that_cannot_start_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "lib/python" in path][:2])
    dispatcher = LocalDispatcher("driver", 1, Resources(), objective=print)
    events: list[object] = []

    def poll() -> None:
        while True:
            dispatcher.poll(events.append, 0.1)

    try:
        with pytest.raises(AutomlError, match="with exit status 1 before it was ready"):
            poll()
    finally:
        dispatcher.close()
