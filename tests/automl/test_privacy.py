"""Nothing leaves the machine: a sweep connects to the loopback interface at most."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_python import COMMAND, run, write

# Read by every Python that the sweep starts, too: each connection and each name that is looked up
# is written to a file, and what is not of this machine fails.
GUARD = """
import os, sys

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
INLINE = """
import automl
automl.sweep(
    lambda trial: (trial.params["x"] - 0.3) ** 2, {"x": (0.0, 1.0)}, "minimize loss", trials=8,
    dispatcher="inline",
).save_report("report.html")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, GUARD, INLINE)
    return tmp_path


def connections(folder: Path, *words: str, status: int = 0) -> list[str]:
    """What the guard has seen of a program and of all that it starts."""
    run(folder, *words, status=status, GUARD_LOG=str(folder / "guard.log"))
    seen = (folder / "guard.log").read_text().splitlines()
    assert "guarded" in seen
    return [line for line in seen if line != "guarded"]


def test_a_sweep_in_this_process_connects_to_nothing(folder: Path) -> None:
    assert connections(folder, "mine.py") == []


def test_a_sweep_of_a_command_connects_to_nothing_outside(folder: Path) -> None:
    local = ("--dispatcher", "local", *COMMAND)
    seen = connections(folder, "-m", "automl", "sweep", "line.yaml", *local)
    assert [line for line in seen if not line.startswith("here ")] == []
    assert (folder / "guard.log").read_text().count("guarded") > 4, "workers and programs, too"


def test_the_guard_sees_a_connection(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=1)\n"
    )
    (first, *_) = connections(folder, "mine.py", status=1)
    assert first.startswith("OUTSIDE socket.getaddrinfo '192.0.2.1'")
