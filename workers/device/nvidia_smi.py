"""Questions to `nvidia-smi`, the program that comes with NVIDIA's driver."""

import csv
import subprocess
from collections.abc import Set
from typing import Final

SMI_SECONDS: Final = 20.0  # it takes seconds if no process has opened the driver
_MIB: Final = 1 << 20


def query(question: str, timeout: float = SMI_SECONDS) -> list[list[str]]:
    """The rows of an answer; none if there is no answer, as on a machine without the program."""
    try:
        done = subprocess.run(
            ["nvidia-smi", question, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]


def process_bytes(pids: Set[int], timeout: float = SMI_SECONDS) -> int | None:
    """GPU memory of these processes together, as the driver counts it.

    Returns:
        None if the driver lists none of them, as in most containers, where it knows other numbers.
    """
    rows = query("--query-compute-apps=pid,used_memory", timeout)
    found = [
        int(row[1]) * _MIB
        for row in rows
        if len(row) == 2 and row[0].isdigit() and int(row[0]) in pids and row[1].isdigit()
    ]
    return sum(found) if found else None
