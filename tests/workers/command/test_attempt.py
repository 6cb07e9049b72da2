"""Real processes: what a command gets, what it reports, and how it ends."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from search_spaces.errors import UsageError
from workers.command import command as running_command
from workers.command.command import CommandObjective
from workers.context import Context
from workers.protocol import Assignment, Limits, Outcome, Report, StopRequest
from workers.run import run


class CommandRunner:
    """Runs attempts of one trial; `reports` holds what the last one sent."""

    def __init__(self, folder: Path) -> None:
        self.trial = folder / "trial"
        self.reports: list[Report] = []
        self.attempt = 0
        self.device = "cpu"
        self.on_report: Callable[[Report], object] = lambda report: None
        self.request: StopRequest | None = None
        self.context: Context | None = None  # of the attempt

    def __call__(
        self,
        *arguments: str,
        params: dict[str, Any] | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> Outcome:
        self.attempt += 1
        self.reports = []
        assignment = Assignment(
            "s",
            3,
            self.attempt,
            params or {},
            None,
            str(self.trial),
            resume=self.attempt > 1,
            seed=7,
            limits=limits or Limits(),
        )
        context = self.context = Context(
            assignment, self._take, lambda: self.request, device=self.device
        )
        return run(context, CommandObjective(arguments, **options))

    def python(self, code: str, *arguments: str, **options: Any) -> Outcome:
        """Run a Python program of these lines."""
        script = self.trial.parent / "script.py"
        script.write_text(f"import json, os, sys, time\n{code}")
        return self(sys.executable, "-S", str(script), *arguments, **options)

    @property
    def log(self) -> str:
        """The newest log of the trial."""
        return (self.trial / "logs" / f"attempt-{self.attempt}-rank-0.log").read_text()

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        self.on_report(report)


@pytest.fixture
def command(tmp_path: Path) -> CommandRunner:
    return CommandRunner(tmp_path)


APPEND = """
def report(**line):
    with open(os.environ["AUTOML_REPORTS"], "a") as file:
        file.write(json.dumps(line) + "\\n")
"""


def running(mark: str) -> list[int]:
    """The processes that have the mark among their arguments."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if mark in (process.info["cmdline"] or ()) and process.info["status"] != "zombie":
            found.append(process.info["pid"])
    return found


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_command_gets(command: Any, tmp_path: Path) -> None:
    code = """
known = {key: value for key, value in os.environ.items() if key.startswith("AUTOML_")}
known["cwd"] = os.getcwd()
known["params"] = json.load(open(os.environ["AUTOML_PARAMS"]))
known["argv"] = sys.argv[1:]
known["stdin"] = sys.stdin.read()
json.dump(known, open("got.json", "w"))
report(step=1, loss=0.5)
report(step=2.0, loss=0.25, n=3)
report(loss=0.125)
"""
    done = command.python(APPEND + code, "--lr={lr}", params={"lr": 0.5}, folder=str(tmp_path))
    assert done.ending == "completed", done.message
    sent = [(report.step, report.metrics) for report in command.reports]
    assert sent == [(1, {"loss": 0.5}), (2, {"loss": 0.25, "n": 3})]
    assert done.metrics == {"loss": 0.125}
    got = json.loads((tmp_path / "got.json").read_text())
    found = [got[key] for key in ("argv", "params", "cwd", "stdin", "AUTOML_TRIAL", "AUTOML_SEED")]
    assert found == [["--lr=0.5"], {"lr": 0.5}, str(tmp_path), "", "3", "7"]
    assert Path(got["AUTOML_CHECKPOINT_DIR"]).is_dir()
    assert "AUTOML_RESUME" not in got


def test_reports_arrive_while_the_command_runs(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits until its report was seen; without that it would end with status 1."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def seen(report: Any) -> None:
        (command.trial / f"seen-{report.step}").touch()

    command.on_report = seen
    code = (
        APPEND
        + """
def wait(number):
    for _ in range(1000):
        if os.path.exists(f"seen-{number}"): return
        time.sleep(0.01)
    sys.exit(1)
report(step=1, loss=0.5); wait(1)
print("epoch 2 loss 0.25"); wait(2)
"""
    )
    command.trial.mkdir()
    patterns = {"loss": r"loss (\S+)", "step": r"epoch (\d+)"}
    done = command.python(code, reports=patterns, folder=str(command.trial))
    assert done.ending == "completed", done.message


def test_reports_that_cannot_be_read_are_left_out(command: Any) -> None:
    code = r"""
with open(os.environ["AUTOML_REPORTS"], "ab") as file:
    file.write(b'{"step": 1, "loss": NaN}\n{"step": 2, "lo')
    file.flush()
    time.sleep(0.2)
    file.write(b'ss": 3}\n[1]\n{"step": "x", "loss": 1}\n\xff\x00\n{"st\n\n' + b"[" * 100_000)
    file.write(b'\n{"step": 4, "loss": null, "name": "x"}\n{"step": 5, "loss": 0.5')
"""
    done = command.python(code)
    assert done.ending == "completed"
    steps = [(r.step, r.metrics["loss"]) for r in command.reports]
    assert repr(steps) == "[(1, nan), (2, 3.0), (4, nan)]"
    for words in (
        "line 3 is no JSON object: b'[1]'; it is left out",
        "line 4: a step is a whole number, got 'x'",
        "line 5 is no JSON object",
        "line 8 is no JSON object",
        "line 9: metric 'name' must be a number, got str of 1: 'x'",
        """line 10 is no JSON object: b'{"step": 5, "loss": 0.5'""",
    ):
        assert f"AUTOML_REPORTS, {words}" in command.log


@pytest.mark.parametrize(
    ("code", "failure", "words"),
    [
        ("sys.exit(3)", "crashed", "the command ended with exit status 3"),
        ("raise ValueError('bad lr')", "crashed", "exit status 1: ValueError: bad lr"),
        ("print('what happened'); sys.exit(2)", "crashed", "exit status 2: what happened"),
        ("os.kill(os.getpid(), 11)", "crashed", "was killed by signal 11 (SIGSEGV)"),
        ("os.kill(os.getpid(), 9)", "preempted", "killed by signal 9 (SIGKILL) from outside"),
        ("raise OSError(28, os.strerror(28))", "preempted", "there is no room on the disk: the co"),
        ("bytearray(10**15)", "out_of_memory", "exit status 1: MemoryError"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "out_of_memory", "Tried"),
        ("pass", "missing_metric", "reported no metric 'loss'; these were reported: none"),
    ],
)
def test_a_failure_has_a_kind_and_one_message(
    command: Any, code: str, failure: str, words: str
) -> None:
    done = command.python(code, goal="loss")
    assert (done.ending, done.failure) == ("failed", failure)
    assert words in done.message
    assert "\n" not in done.message


def test_a_program_that_is_not_there(command: Any, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for arguments, folder, words in (
        (("nowhere",), str(tmp_path), "No such file or directory: 'nowhere'"),
        (("true",), gone, f"No such file or directory: '{gone}'"),
        (("echo", "a\0b"), str(tmp_path), "embedded null byte"),
    ):
        said = command(*arguments, folder=folder).message
        assert said.startswith("the command cannot be started: ")
        assert said.endswith(words)


def test_both_outputs_are_searched_and_are_the_log_of_the_trial(command: Any) -> None:
    code = "print('to out'); print('epoch 1 loss 0.5', file=sys.stderr)"
    done = command.python(code, reports={"loss": r"loss (\S+)", "step": r"epoch (\d+)"})
    assert done.ending == "completed"
    assert [(r.step, r.metrics) for r in command.reports] == [(1, {"loss": 0.5})]
    assert all(words in command.log for words in ("to out", "epoch 1 loss 0.5", "runs ["))


def stop_after_first(command: Any, request: StopRequest) -> None:
    def ask(report: Any) -> None:
        command.request = request

    command.on_report = ask


LOOP = (
    APPEND
    + """
folder = os.environ["AUTOML_CHECKPOINT_DIR"]
state = os.path.join(folder, "epoch")
first = int(open(state).read()) + 1 if os.environ.get("AUTOML_RESUME") else 1
for epoch in range(first, 8):
    print("trains", epoch, flush=True)
    if "forgets" not in sys.argv:
        open(state, "w").write(str(epoch))
    report(step=epoch, loss=1 / epoch)
    for _ in range(200):
        if epoch == 3 and first == 1 and not os.path.exists(os.environ["AUTOML_STOP"]):
            time.sleep(0.02)
    if os.path.exists(os.environ["AUTOML_STOP"]) and "deaf" not in sys.argv:
        break
"""
)


def test_a_pause_and_what_follows(command: Any) -> None:
    stop_after_first(command, StopRequest.PAUSE)
    paused = command.python(LOOP)
    assert paused.ending == "paused"
    trained = [int(line[7:]) for line in command.log.splitlines() if line.startswith("trains")]
    command.request, command.on_report = None, lambda report: None
    done = command.python(LOOP)
    assert done.ending == "completed"
    trained += [int(line[7:]) for line in command.log.splitlines() if line.startswith("trains")]
    assert trained == [1, 2, 3, 4, 5, 6, 7]
    assert command.reports[0].step + len(command.reports) == 8


def test_a_request_after_the_end_of_a_program_has_not_stopped_it(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"9{os.getpid()}.04"

    class LateRequest(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            ready = super().select(timeout)
            wait_for(lambda: running(mark) == [])
            command.request = StopRequest.STOP
            return ready

    late = SimpleNamespace(DefaultSelector=LateRequest, EVENT_READ=selectors.EVENT_READ)
    monkeypatch.setattr(running_command, "selectors", late)
    assert command.python(APPEND + "report(step=1, loss=0.5)", mark).ending == "completed"
    assert command.request is StopRequest.STOP


@pytest.mark.parametrize("request_", list(StopRequest))
def test_a_command_that_has_left_no_checkpoint_cannot_pause(
    command: Any, request_: StopRequest
) -> None:
    stop_after_first(command, request_)
    ended = command.python(LOOP, "forgets")
    expected = "stopped" if request_ is StopRequest.PAUSE else request_.ending
    assert ended.ending == expected
    assert ("AUTOML_CHECKPOINT_DIR" in ended.message) is (request_ is StopRequest.PAUSE)


def test_a_command_that_ignores_everything_is_killed(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.command.command.KILL_GRACE", 0.3)
    stop_after_first(command, StopRequest.STOP)
    code = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
    code += APPEND + "report(step=1, loss=1)\nwhile True: time.sleep(0.1)"
    done = command.python(code, stop_grace=0.1)
    assert done.ending == "stopped"
    assert "no\n" in command.log


def test_an_error_after_the_request_is_a_failure(command: Any) -> None:
    stop_after_first(command, StopRequest.PAUSE)
    code = APPEND + "report(step=1, loss=1)\n"
    code += "while not os.path.exists(os.environ['AUTOML_STOP']): time.sleep(0.01)\nsys.exit(5)"
    done = command.python(code)
    assert (done.ending, done.failure) == ("failed", "crashed")


CHILDREN = """
import subprocess
null = subprocess.DEVNULL
subprocess.Popen(["sleep", sys.argv[1]], stdin=null, stdout=null, stderr=null)
"""


def test_no_child_is_left(command: Any) -> None:
    mark = f"9{os.getpid()}.01"
    assert command.python(CHILDREN + "print('bye')", mark).ending == "completed"
    wait_for(lambda: running(mark) == [])


def test_a_command_ends_with_its_worker(tmp_path: Path) -> None:
    mark = f"9{os.getpid()}.03"
    code = "import os, sys, time\nfrom workers.command.command import started\n"
    code += f"process = started(['sleep', '{mark}'], '/', os.environ)\ntime.sleep(1000)"
    worker = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: running(mark))
    worker.kill()
    worker.wait()
    wait_for(lambda: running(mark) == [])


def test_the_limit_of_memory_is_for_all_processes(command: Any) -> None:
    code = """
import subprocess
held = bytearray(b"x") * 60_000_000
if len(sys.argv) == 1:
    sys.exit(subprocess.run([sys.executable, "-S", __file__, "child"]).returncode)
time.sleep(60)
"""
    done = command.python(code, limits=Limits(memory_bytes=100_000_000))
    assert (done.ending, done.failure) == ("failed", "out_of_memory")
    assert "a rank may use 0.10 GB (resources.memory)" in done.message
    assert 100e6 < (done.peak_memory_bytes or 0) < 180e6


def test_a_command_that_reports_nothing_for_too_long(command: Any) -> None:
    mark = f"9{os.getpid()}.02"
    done = command("sleep", mark, limits=Limits(timeout_seconds=0.3))
    assert (done.failure, done.message) == ("timeout", "no report for 0 s")
    assert running(mark) == []


def test_a_command_in_the_folder_of_its_trial(command: Any) -> None:
    code = "print(os.getcwd(), sys.argv[1:], file=open('out.txt', 'w'))\nimport helper"
    folder = command.trial.parent
    (folder / "helper.py").touch()
    (folder / "script.py").write_text(f"import os, sys\n{code}")
    arguments = ("{trial}", "{trial_dir}", "{seed}", "{checkpoint_dir}", "{config}")
    done = command(
        sys.executable, "script.py", *arguments, folder=str(folder), in_trial=True, goal=""
    )
    assert done.ending == "completed", done.message
    work = command.trial / "work"
    expected = ["3", str(work), "7", str(command.trial / "checkpoints")]
    written = (work / "out.txt").read_text().split("attempt-")[0]
    assert written == f"{work} {expected!r}"[:-1] + f", '{command.trial}/command/"


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        ("loss", "no line of its output matches"),
        ("acc", "nothing in `reports` is named acc: add acc: REGEX"),
    ],
)
def test_a_missing_metric_shows_what_was_printed(command: Any, goal: str, why: str) -> None:
    code = "print('rows 100')\nprint('rmse 0.62')\nprint('saved', file=sys.stderr)"
    patterns = {"loss": r"loss (\S+)", "rmse": r"rmse (\S+)"}
    done = command.python(code, goal=goal, reports=patterns)
    assert done.failure == "missing_metric"
    assert f"these were reported: rmse; {why}" in done.message
    assert done.message.endswith("the last lines that it printed: rows 100 | rmse 0.62 | saved")


@pytest.mark.parametrize("file", [False, True])
def test_usual_lines_are_read_unless_the_program_writes_reports(command: Any, file: bool) -> None:
    code = APPEND + "print('loss 0.25')\n" + ("report(step=7, loss=0.5)\n" if file else "")
    done = command.python(code, goal="loss")
    assert done.ending == "completed", done.message
    sent = [(report.step, report.metrics["loss"]) for report in command.reports]
    assert sent == ([(7, 0.5)] if file else [(1, 0.25)])


def test_rows_of_a_csv_file_are_reports(command: Any, tmp_path: Path) -> None:
    """Those of an earlier run are not, and a cell that is empty or a text is no metric."""
    (tmp_path / "old.csv").write_text("step,loss\n1,9\n")
    code = "print('loss 7')\nwith open(sys.argv[1], 'w') as f:\n"
    code += " f.write('epoch, loss,note\\n3,0.5,a\\n'); f.flush(); time.sleep(0.2)\n"
    code += " f.write('4,,b\\n5,0.2'); f.flush(); time.sleep(0.2); f.write('5,c')"
    reports = {"file": str(tmp_path / "{name}.csv")}
    done = command.python(
        code, str(tmp_path / "new.csv"), params={"name": "new"}, goal="loss", reports=reports
    )
    assert done.ending == "completed", done.message
    sent = [(report.step, report.metrics) for report in command.reports]
    assert sent == [(3, {"loss": 0.5}), (5, {"loss": 0.25})]
    reports = {"file": str(tmp_path / "old.csv")}
    done = command.python("print('loss 7')", goal="loss", reports=reports)
    assert (done.failure, "old.csv was not written, or its first" in done.message) == (
        "missing_metric",
        True,
    )
    with pytest.raises(UsageError, match="all trials would write 'm"):
        CommandObjective(("sh",), {"file": "m.csv"}).check([])
