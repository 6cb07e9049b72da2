"""Runs a command for some seconds, to see what it prints."""

from __future__ import annotations

import json
import os
import selectors
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from workers.command.output import Lines
from workers.command.process import CommandProcess, End, read_some

SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.5  # between two looks at what was printed
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
    printed: list[bytes] = []
    streams = (Lines(), Lines())
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
            ended = _listen(process, streams, printed, enough, time.monotonic() + seconds)
            end = process.end() if ended else None
        lines = [*printed, *(stream.rest() for stream in streams)]
        return DryRun(_texts(lines), _names(Path(places["AUTOML_REPORTS"])), end)


def _listen(
    process: CommandProcess,
    streams: Sequence[Lines],
    printed: list[bytes],
    enough: Callable[[list[str]], bool],
    deadline: float,
) -> bool:
    """Take in what is printed; returns whether the command has ended."""
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for stream, lines in zip((process.stdout, process.stderr), streams, strict=True):
            selector.register(stream, selectors.EVENT_READ, lines)
        while time.monotonic() < deadline and len(printed) < MAX_LINES:
            if not selector.get_map() and process.has_ended:
                return True
            for key, _ in selector.select(LOOK_SECONDS if selector.get_map() else 0.01):
                chunk = read_some(key.fileobj)  # type: ignore[arg-type]
                printed += key.data.feed(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            if time.monotonic() - looked > LOOK_SECONDS:
                if enough(_texts(printed)):
                    return False
                looked = time.monotonic()
        return False


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
