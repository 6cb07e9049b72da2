"""Reads scalars from TensorBoard's event files while a command writes them."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from search_spaces.errors import TrialFailure, UsageError, needs

if TYPE_CHECKING:
    from .arguments import Braces
    from .metrics import Collector

TENSORBOARD: Final = "tensorboard"  # key under `reports:`
MAX_FILES: Final = 1000
SOURCE: Final = "an event file"
_PATTERN: Final = "*tfevents*"


def check_reader() -> None:
    """Check that TensorBoard's own reader is installed; raises UsageError if it is not."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise UsageError(needs("reports.tensorboard", "tensorboard", "tensorboard")) from error


def place_of(text: str, braces: Braces, environment: Mapping[str, str], folder: str) -> Path:
    """The folder of a trial's event files, or its CSV file.

    Args:
        text: with braces as in an argument, and variables such as `$AUTOML_CHECKPOINT_DIR`.
        braces: what they stand for.
        environment: of the command; only variables that begin with AUTOML_ are replaced.
        folder: the working directory of the command.

    Raises:
        TrialFailure: the text holds a parameter that is inactive or None.
    """
    filled = braces.replaced(text)
    if filled is None:
        raise TrialFailure("missing_metric", f"`reports` names no place: {text!r}")
    known = {name: value for name, value in environment.items() if name.startswith("AUTOML_")}
    return Path(folder, string.Template(filled).safe_substitute(known))


class EventFiles:
    """Reads the event files in a folder, at any depth, that an attempt has written.

    Args:
        folder: it need not exist yet.
        since: seconds since the epoch; files that were changed last before are of earlier runs.
        collector: gets the scalars, whose names are their tags.
    """

    def __init__(self, folder: Path, since: float, collector: Collector) -> None:
        self._folder = folder
        self._since = since
        self._collector = collector
        self._loaders: dict[str, Any] = {}

    def read(self) -> None:
        """Report the scalars that are new; those of one step together."""
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        for path in self._files():
            if path not in self._loaders:
                self._loaders[path] = EventFileLoader(path)
            step, metrics = 0, dict[str, float]()
            for event in self._loaders[path].Load():
                found = dict(_scalars(event))
                if metrics and found and event.step != step:
                    self._collector.report(step, metrics, SOURCE)
                    metrics = {}
                if found:
                    step = event.step
                    metrics |= found
            if metrics:
                self._collector.report(step, metrics, SOURCE)

    def _files(self) -> list[str]:
        found = []
        for path in sorted(self._folder.rglob(_PATTERN))[:MAX_FILES]:
            facts = os.lstat(path)
            if facts.st_mtime >= self._since and path.is_file() and not path.is_symlink():
                found.append(str(path))
        return found


def _scalars(event: Any) -> Iterator[tuple[str, float]]:
    """The tags and values of an event that are single numbers."""
    from tensorboard.util import tensor_util

    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "scalars":
            yield value.tag, float(tensor_util.make_ndarray(value.tensor).item())
