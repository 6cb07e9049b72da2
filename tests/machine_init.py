"""The first process of a machine of `tests/machines.py`: makes its folders, then waits for its end.

    python machine_init.py NAME HOSTS KEPT HIDDEN...

It runs in namespaces of its own. Its end ends every process of the machine. It ends if its standard
input closes, so also if the test is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, stdin=subprocess.DEVNULL)


def hide(folder: Path, kept: list[Path]) -> None:
    """Replace a folder by an empty one; of what it has, only the kept folders stay visible."""
    inside = [one for one in kept if one.is_relative_to(folder)]
    # Those in a hidden folder are bound to their old place again, through open files.
    held = [(one, os.open(one, os.O_PATH)) for one in inside]
    mount("-t", "tmpfs", "-o", "mode=1777", "none", str(folder))
    for one, file in held:
        one.mkdir(parents=True, exist_ok=True)
        mount("--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{file}", str(one))
        os.close(file)


def reap(number: int, frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(name: str, hosts: str, kept: str, hidden: list[str]) -> None:
    mount("--make-rprivate", "/")
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(hosts)
    Path(file.name).chmod(0o644)
    mount("--bind", file.name, "/etc/hosts")
    Path(file.name).unlink()
    for folder in hidden:
        hide(Path(folder), [Path(one) for one in kept.split(os.pathsep)])
    subprocess.run(["hostname", name], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGCHLD, reap)
    print("ready", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
