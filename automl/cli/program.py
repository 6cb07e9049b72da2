"""What trials run: a function named as FILE:NAME, or a command after `--`."""

import hmac
import json
import os
import runpy
import secrets
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import click

from automl.core import SweepSpec
from automl.core.text import shell_line
from automl.errors import UsageError
from search_spaces.plugins import nearest

KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Program:
    """A command as it was typed.

    Args:
        arguments: the program and its arguments.
    """

    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """What to type again."""
        return f"-- {shell_line(self.arguments)}"


def named(
    spec: SweepSpec, objective: str | None, program: Program | None
) -> tuple[str | None, Program | None, bool]:
    """What is typed or, if nothing is, what a configuration names; and whether it is only typed.

    Args:
        spec: of a configuration; of a stored one, what this user has signed counts (`checked`).
    """
    known: tuple[str | None, Program | None] = (None, None)
    if spec.signed or not spec.received:  # else a stranger's words, which may be no command
        words = shlex.split(spec.command)[1:] if spec.command else []
        known = (spec.objective or None, Program(tuple(words)) if words else None)
    is_typed = (objective, program) not in ((None, None), known)
    return (objective, program, True) if is_typed else (*known, False)


def signature(spec: SweepSpec, *, create: bool = False) -> str:
    """Says that this user has named what a spec runs, in its folder; "" if there is no key.

    The key is a file that only the user reads. A store may come from anybody: without the key,
    nobody can write into it what this user's `automl resume` runs.

    Args:
        create: a key, if there is none.
    """
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    path = Path(folder, "automl", "key")
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.touch(0o600, exist_ok=False)
                path.write_bytes(secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
    except OSError:
        return ""
    words = json.dumps([spec.folder, spec.command, spec.objective]).encode()
    return hmac.new(key, words, "sha256").hexdigest() if len(key) == KEY_BYTES else ""


def signed(spec: SweepSpec, objective: str | None, *, typed: bool) -> SweepSpec:
    """The spec with the signature of this user, if a configuration names what it runs."""
    spec = replace(spec, objective="" if typed else objective or "")
    own = not typed and bool(spec.command or spec.objective)
    return replace(spec, signed=signature(spec, create=True) if own else "")


def checked(spec: SweepSpec) -> SweepSpec:
    """A stored spec; what another user has signed counts as not signed."""
    found = json.dumps(spec.signed).encode()  # a stranger's store may hold any JSON here
    own = spec.signed and hmac.compare_digest(found, json.dumps(signature(spec)).encode())
    return spec if own else replace(spec, signed="")


class ProgramVerb(click.Command):
    """A verb whose arguments may end in `-- PROGRAM ARG ...`; it gets a `program`, or None."""

    parts: tuple[str, ...] = ("program",)  # what stands behind each `--`
    usage = "[-- COMMAND [ARG]...]"

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the command at the end."""
        return [*super().collect_usage_pieces(ctx), self.usage]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Everything behind the last `--` that counts is the command."""
        groups: list[list[str]] = [[]]
        for word in args:
            if word == "--" and len(groups) <= len(self.parts):
                groups.append([])
            else:
                groups[-1].append(word)
        rest = super().parse_args(ctx, groups[0])
        for name, words in zip_longest(self.parts, groups[1:]):
            if words == [] and name != "flags":
                which = "the second " if name != self.parts[0] else ""
                example = "a command is needed after {}--, such as -- python train.py"
                raise click.UsageError(example.format(which), ctx)
            ctx.params[name] = None if words is None else Program(tuple(words))
        if ctx.params["program"] and ctx.params.get("objective"):
            raise click.UsageError("--objective or a command after --: leave one out", ctx)
        return rest


def load_trained(
    spec: SweepSpec, objective: str | None, program: Program | None
) -> Callable[[Any], Any] | None:
    """What the trials of a sweep run: a function, a command, or None for its workload.

    Args:
        spec: of the sweep; a command is given its goal and its `reports`.
        objective: FILE:NAME of a function.
        program: after `--`.

    Raises:
        UsageError: it cannot be run.
    """
    if program is None:
        return load_objective(objective)
    from workers.command.arguments import flags_of
    from workers.command.command import CommandObjective

    parameters = spec.known_space.parameters
    command = CommandObjective(
        program.arguments,
        spec.reports,
        goal=spec.goals[0].metric,
        in_trial=spec.cwd == "trial",
        flags=flags_of(parameters),
    )
    command.check(parameters)
    command.check_program()
    return command


def load_objective(target: str | None) -> Callable[[Any], Any] | None:
    """The function that `FILE:NAME` names; None for None.

    Raises:
        UsageError: there is no such file or name, the file cannot be imported, or the name is no
            function.
    """
    if target is None:
        return None
    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not file or not name.isidentifier():
        raise UsageError(f"--objective is FILE:NAME, such as train.py:objective, got {target!r}")
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"--objective: there is no Python file {file!r}")
    known = {key: value for key, value in _load(path).items() if callable(value)}
    if name not in known:
        hint = nearest(name, [key for key in known if not key.startswith("_")])
        raise UsageError(f"--objective: {file} defines no function {name!r}: {hint}")
    function: Callable[[Any], Any] = known[name]
    return function


def _load(path: Path) -> dict[str, Any]:
    """The names that a file defines.

    Its folder becomes importable, as if Python ran the file. The module does not stay in
    `sys.modules`, so that its functions are sent to workers by value: they may not have the file.
    """
    path = path.absolute()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    except Exception as error:
        raise UsageError(
            f"--objective: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
