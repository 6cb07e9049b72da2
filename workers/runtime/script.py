"""What a script has set up before its sweep: workers begin with the same."""

import dis
import importlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

_SETS_VARIABLES: Final = {"environ", "putenv", "setenv"}  # before an import, they may decide it


@dataclass(frozen=True)
class LoggerSetup:
    """How a logger is set up: its level, and the level and formatter of each handler."""

    level: int
    propagate: bool
    handlers: list[tuple[int, logging.Formatter | None]]


@dataclass(frozen=True)
class Script:
    """The set-up of a process, for another one.

    Args:
        arguments: `sys.argv`.
        folder: the working folder.
        paths: folders of `sys.path`.
        loggers: by name, "" for the root.
        filters: of warnings.
        imports: modules that the objective imports when it is called.
    """

    arguments: list[str]
    folder: str
    paths: list[str]
    loggers: dict[str, LoggerSetup]
    filters: list[tuple[str, str, Any, str, int]]
    imports: list[str]

    @classmethod
    def of_this_process(cls, objective: Any) -> "Script":
        """The set-up of this process, and what its objective imports."""
        folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
        return cls(
            list(sys.argv),
            str(Path.cwd()) if Path().exists() else "",  # it may be gone
            folders,
            _loggers(),
            [
                (action, _text(message), category, _text(module), line)
                for action, message, category, module, line in warnings.filters
            ],
            sorted(_imports(objective)),
        )

    def enter(self) -> None:
        """Set this process up in the same way, as far as it has the folders."""
        sys.path += [folder for folder in self.paths if folder not in sys.path]
        sys.argv[:] = self.arguments
        self.go_home()
        for name, setup in self.loggers.items():
            logger = logging.getLogger(name or None)
            logger.setLevel(setup.level)
            logger.propagate = setup.propagate
            for level, formatter in [] if logger.handlers else setup.handlers:
                handler = _ToStandardError(level)
                handler.setFormatter(formatter)
                logger.addHandler(handler)
        warnings.resetwarnings()
        for action, message, category, module, line in reversed(self.filters):
            warnings.filterwarnings(action, message, category, module, line)

    def go_home(self) -> None:
        """Make its working folder this process's, which an earlier trial may have left."""
        with suppress(OSError):  # another machine may lack it
            os.chdir(self.folder)

    def import_ahead(self) -> None:
        """Import what the objective will import, so that its first trial does not wait for it."""
        for name in self.imports:
            with suppress(Exception):  # the trial gets the error, if it comes to this import
                importlib.import_module(name)


class _ToStandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what is standard error at that time: the log of the trial that runs."""

    def __init__(self, level: int) -> None:
        logging.Handler.__init__(self, level)

    @property
    def stream(self) -> Any:
        """Standard error."""
        return sys.stderr


def _loggers() -> dict[str, LoggerSetup]:
    """The loggers that the script has set up; those of packages are set up by their import."""
    found = {"": _setup(logging.getLogger(), own=True)}
    for name, logger in logging.Logger.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            package = sys.modules.get(name.partition(".")[0])
            own = package is None or package.__name__ == "__main__"
            if logger.level or (own and logger.handlers):
                found[name] = _setup(logger, own)
    return found


def _setup(logger: logging.Logger, own: bool) -> LoggerSetup:
    handlers = [one for one in logger.handlers if own and not isinstance(one, logging.NullHandler)]
    # One for each format: a script that writes to a file and to its terminal has one log here.
    by_format = {getattr(one.formatter, "_fmt", ""): one for one in handlers}
    kept = [(one.level, _sent(one.formatter)) for one in by_format.values()]
    return LoggerSetup(logger.level, logger.propagate, kept)


def _sent(formatter: logging.Formatter | None) -> logging.Formatter | None:
    """A formatter for another process: a plain one with the same format."""
    if formatter is None:
        return None
    plain = logging.Formatter()
    plain.datefmt, plain._style, plain._fmt = formatter.datefmt, formatter._style, formatter._fmt
    return plain


def _text(pattern: Any) -> str:
    """A filter's pattern as it was given; None is every text."""
    return getattr(pattern, "pattern", pattern) or ""


def _imports(objective: Any) -> set[str]:
    """Installed modules that a function imports when it is called, at any depth of its own code.

    None if it sets environment variables, which may have to be set before an import.
    """
    function = getattr(objective, "__func__", objective)
    if not hasattr(function, "__code__"):
        function = vars(type(objective)).get("__call__")
    codes = list(codes_of(getattr(function, "__code__", None)))
    if any(_SETS_VARIABLES & set(code.co_names) for code in codes):
        return set()
    named = {
        one.argval
        for code in codes
        for one in dis.get_instructions(code)
        if one.opname == "IMPORT_NAME" and one.argval
    }
    return {name for name in named if _is_installed(name.partition(".")[0])}


def codes_of(code: CodeType | None) -> Iterator[CodeType]:
    """The code of a function, and of those that are defined in it."""
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from codes_of(constant)


def _is_installed(name: str) -> bool:
    """Whether a module is of an installed package: a script of the user may act when imported."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
        return any("site-packages" in place or "dist-packages" in place for place in places)
    return False
