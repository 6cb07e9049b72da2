"""Ends what is left of a Ray that was started for one sweep, and removes its temporary folder.

    python reaper.py FOLDER

The controller starts this program with a pipe to it. The pipe closes when the controller ends, even
if it is killed. Then every process of this account that works in the folder is killed: Ray's agents
would live on for a minute.
"""

import contextlib
import os
import shutil
import sys
import time

import psutil

GRACE_SECONDS = 0.5  # for Ray's own processes to end by themselves


def processes_of(folder: str, spared: set[int]) -> list[psutil.Process]:
    """The processes of this account that name the folder or have a file of it open.

    Args:
        spared: ids of other processes: this one, and the controller, whose logs are there.
    """
    everybody = (process for process in psutil.process_iter() if process.pid not in spared)
    return [process for process in everybody if _works_in(process, folder)]


def _works_in(process: psutil.Process, folder: str) -> bool:
    try:
        if process.uids().real != os.getuid():
            return False
        files = (file.path for file in process.open_files())
        return any(folder in word for word in process.cmdline()) or any(
            path.startswith(folder) for path in files
        )
    except psutil.Error:
        return False  # it has just ended


def main(folder: str) -> None:
    """Wait for the end of the controller, then clean up."""
    spared = {os.getpid(), os.getppid()}
    sys.stdin.buffer.read()
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := processes_of(folder, spared)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=GRACE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
