"""Runs a command for some seconds, to see what it prints."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Final, NamedTuple

from workers.command.output import Lines
from workers.command.process import CommandProcess, End, read_some

SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.2  # between two looks at what was printed
MAX_LINES: Final = 10_000


class DryRun(NamedTuple):
    """What a command has printed.

    Args:
        lines: of both outputs.
        reported: names of the metrics that it has written to AUTOML_REPORTS.
        end: how it ended; None if it would have gone on.
    """

    lines: list[str]
    reported: list[str]
    end: End | None


def dry_run(
    arguments: Sequence[str], enough: Callable[[list[str]], bool], seconds: float = SECONDS
) -> DryRun:
    """Run a command where automl was typed, until it ends, has printed enough, or time is up.

    Args:
        arguments: the program and its arguments.
        enough: whether these lines suffice.
    """
    printed: list[str] = []
    end = None
    with tempfile.TemporaryDirectory() as folder:
        places = {
            f"AUTOML_{name}": str(Path(folder, name.lower()))
            for name in ("REPORTS", "STOP", "CHECKPOINT_DIR", "TRIAL_DIR", "PARAMS")
        }
        for name in ("AUTOML_CHECKPOINT_DIR", "AUTOML_TRIAL_DIR"):
            Path(places[name]).mkdir()
        Path(places["AUTOML_PARAMS"]).write_text("{}")
        found = {"AUTOML_TRIAL": "0", "AUTOML_SEED": "0", "PYTHONUNBUFFERED": "1"}
        environment = {**os.environ, **found, **places}
        with CommandProcess(arguments, str(Path.cwd()), environment) as process:
            streams = (process.stdout, process.stderr)
            readers = [Thread(target=_read, args=(one, printed), daemon=True) for one in streams]
            for reader in readers:
                reader.start()
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not enough(printed):
                readers[0].join(LOOK_SECONDS)
                if process.has_ended and not any(reader.is_alive() for reader in readers):
                    end = process.end()
                    break
            process.kill()
            for reader in readers:
                reader.join(LOOK_SECONDS)
        return DryRun(list(printed), _names(Path(places["AUTOML_REPORTS"])), end)


def _read(stream: IO[bytes], printed: list[str]) -> None:
    """Take in what is printed, up to a number of lines."""
    lines = Lines()
    with suppress(OSError, ValueError):  # nobody listens any more
        while (chunk := read_some(stream)) and len(printed) < MAX_LINES:
            printed += _texts(lines.feed(chunk))
        printed += _texts([lines.rest()])


def _texts(lines: Sequence[bytes]) -> list[str]:
    return [line.decode(errors="replace") for line in lines if line.strip()]


def _names(reports: Path) -> list[str]:
    """The metrics in a file of reports."""
    found: dict[str, None] = {}
    with suppress(OSError):
        for line in reports.read_text(errors="replace").splitlines()[:MAX_LINES]:
            with suppress(ValueError, TypeError):
                found |= dict.fromkeys(json.loads(line))
    return [name for name in found if name != "step"]
