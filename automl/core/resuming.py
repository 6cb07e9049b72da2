"""What a person types to resume a sweep: the one place that writes this line."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from automl.errors import AutomlError, StoreFailure

from .spec import KEYS, SweepSpec

_PLAIN: Final = re.compile(r"[\w@%+=:./{}-]+", re.ASCII)  # braces around names need no quotes


def shell_line(words: Sequence[str]) -> str:
    """Words as a line that a shell splits into the same words."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def present_folder() -> str:
    """The working folder; "" if it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


@dataclass(frozen=True)
class Typed:
    """What was typed to run a sweep and its ledger does not keep, or must not choose.

    Args:
        store: folder or database URL.
        objective: FILE:NAME of a function; None if there is none, or it is not known.
        ray_address: of a Ray cluster.
        changes: further words, such as `--trials 60`.
    """

    store: str = KEYS["store"].default
    objective: str | None = None
    ray_address: str | None = None
    changes: tuple[str, ...] = ()

    @property
    def location(self) -> tuple[str, ...]:
        """The option that names the store; nothing if it is the usual one."""
        return () if self.store == KEYS["store"].default else ("--store", self.store)

    def line(self, spec: SweepSpec, *more: str, verb: str = "resume") -> str:
        """The whole line, ready to be pasted; the dispatcher and the budget are in the ledger.

        Args:
            spec: of the sweep.
            more: further words.
            verb: of the command line.
        """
        words = ["automl", verb, spec.name, *self.location]
        if self.ray_address is not None:
            words += ["--ray-address", self.ray_address]
        if spec.artifacts and not spec.received:
            words += ["--artifacts", spec.artifacts]
        changes = list(self.changes)
        for option in more:  # what is given anew replaces what was typed
            if option.startswith("--") and option in changes:
                at = changes.index(option)
                del changes[at : at + 2]
        words += [*changes, *more]
        named = bool(spec.signed) and self.objective in (None, spec.objective)
        return shell_line([*words, *([] if named else trained_words(spec, self.objective))])


def trained_words(spec: SweepSpec, objective: str | None = None) -> list[str]:
    """What a command line must name again: a ledger keeps nothing that can be run.

    The words of a command are split, so that none of a stranger's can end the line.
    """
    if spec.workload is not None or spec.dispatcher == "agents":
        return []
    if not spec.command:
        return ["--objective", objective or spec.objective or "FILE:NAME"]
    try:
        return shlex.split(spec.command)
    except ValueError:  # no program of this project has written it
        return [spec.command]


def python_call(name: str) -> str:
    """What to add to a call of `automl.sweep`, so that it goes on with this sweep."""
    return f"run it again with name={name!r} and resume=True"


@contextmanager
def told_how_to_resume(how: str) -> Iterator[None]:
    """Inside, an error that leaves the sweep resumable ends with how to resume it."""
    try:
        yield
    except AutomlError as error:
        if type(error) not in (AutomlError, StoreFailure):
            raise  # such as a wrong argument: nothing was begun
        raise type(error)(f"{error}. To go on with the sweep: {how}") from error
    except KeyboardInterrupt as error:
        words = f"the sweep is interrupted and can be resumed: {how}"
        raise KeyboardInterrupt(*error.args or [words]) from error
