"""Why a process of this machine was killed, as far as the kernel says."""

from __future__ import annotations

from pathlib import Path


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it says nothing."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass
    return 0
