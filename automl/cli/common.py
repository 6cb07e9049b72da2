"""What several verbs share: options, what their trials run, opening of the store, and output."""

import hmac
import json
import os
import runpy
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import reduce, wraps
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import click

from automl.core import Origin, SweepSpec
from automl.core.arguments import json_data
from automl.core.resources import LIMITS
from automl.core.spec import DISPATCHERS, KEYS
from automl.core.text import printable, shell_line
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.ledger.database import refuse_password
from automl.report.terminal import console, table
from search_spaces.plugins import nearest

Decorator = Callable[[Any], Any]
STORE: Final = KEYS["store"].default
WIDE: Final = 200  # columns, if there is no terminal
KEY_BYTES: Final = 32
# By the name of an option, its path in a configuration and its key.
FLAGS: Final = {
    key.flag.split()[0][2:].replace("-", "_"): (path, key)
    for path, key in {**KEYS, **{f"budget.{name}": key for name, key in LIMITS.items()}}.items()
    if key.flag
}


def setting(name: str, default: str = "", **more: Any) -> Decorator:
    """The option of a setting; its value is a text, which the configuration reads and judges.

    Args:
        name: of the option.
        default: what holds without it, for the help; "" for the default of the setting.
        more: of `click.option`.
    """
    key = FLAGS[name][1]
    flag, metavar = key.flag.split()
    default = default or (key.default if isinstance(key.default, str) else "")
    words = key.help + (f"  [default: {default}]" if default else "")
    return click.option(flag, name, help=words, **{"metavar": metavar, **more})


def several(*decorators: Decorator) -> Decorator:
    """Decorators as one; the first is the outermost."""
    return lambda function: reduce(lambda made, one: one(made), reversed(decorators), function)


def read_by(parse: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback that reads a value which is given."""
    return lambda context, parameter, value: None if value is None else parse(value)


def _store(text: str) -> str:
    refuse_password(text)
    return text


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON and nothing else."
)
store_option: Final = click.option(
    "--store",
    metavar="URL",
    default=STORE,
    show_default=True,
    callback=read_by(_store),
    help="Folder or database URL of the sweeps.",
)
sweep_argument: Final = click.argument("sweep")
newest_argument: Final = click.argument("sweep", required=False)  # else the newest of the store
overrides_argument: Final = click.argument("overrides", metavar="[KEY=VALUE]...", nargs=-1)
config_arguments: Final = several(click.argument("config", metavar="CONFIG"), overrides_argument)
objective_option: Final = click.option(
    "--objective",
    metavar="FILE:NAME",
    help="Function of your own to tune instead of a workload, such as train.py:objective.",
)


def dispatching(default: str = "auto") -> Decorator:
    """The options of where trials run; `default` is said in the help."""
    names = click.Choice(DISPATCHERS)
    where = setting("dispatcher", default, type=names, metavar=None)
    return several(where, setting("ray_address"))


def _opens(write: bool) -> Decorator:
    def decorated(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def inner(store: str, **given: Any) -> Any:
            with opened(store, write=write) as ledger:
                if "sweep" in given and given["sweep"] is None:
                    newest = max(ledger.sweeps(), key=lambda info: info.created, default=None)
                    if newest is None:
                        raise UsageError(
                            f"there is no sweep in {ledger.name}: start one with automl sweep"
                        )
                    given["sweep"] = newest.name
                    if not given.get("as_json"):
                        say(f"sweep {newest.name}, the newest of {store}", err=True)
                return function(ledger, **given)

        return store_option(inner)

    return decorated


reads_store: Final = _opens(write=False)  # with --store; the function gets a ledger
writes_store: Final = _opens(write=True)


def given_settings(options: Mapping[str, Any]) -> list[Any]:
    """The overrides of a configuration that the flags of settings stand for."""
    from automl.config import Override  # `status` needs none

    named = ((name, path) for name, (path, _) in FLAGS.items() if options.get(name) is not None)
    return [Override(path, options[name], f"--{name.replace('_', '-')}") for name, path in named]


def opened(store: str, *, write: bool = False, create: bool = False) -> closing[Ledger]:
    """Open a store; leaving the context closes it."""
    if create:
        Ledger.open(store, create=True).close()
    return closing(Ledger.open(store, readonly=not write))


def say(words: str, *, err: bool = False) -> None:
    """Print text, with control characters escaped."""
    click.echo(printable(words, keep="\n\t"), err=err)


def emit(data: Any) -> None:
    """Print JSON. Numbers that are not finite become the texts "nan", "inf" and "-inf"."""
    say(json.dumps(json_data(data), indent=2, ensure_ascii=False, allow_nan=False))


def draw(*things: Any, width: int = WIDE) -> None:
    """Print tables and texts for people."""
    out = console(width=width)
    for one in things:
        out.print(one)


def draw_table(columns: list[str], rows: list[list[str]], right: Sequence[str] = ()) -> None:
    """Print a table; the columns that `right` names are flush right."""
    draw(table(columns, rows, right=right))


# What trials run: a function named as FILE:NAME, or a command after `--`.


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
    origin: Origin, objective: str | None, program: Program | None
) -> tuple[str | None, Program | None, bool]:
    """What is typed or, if nothing is, what a configuration names; and whether it is only typed.

    Args:
        origin: of a configuration; of a stored one, what this user has signed counts (`checked`).
    """
    known: tuple[str | None, Program | None] = (None, None)
    if origin.signed or not origin.received:  # else a stranger's words, which may be no command
        words = shlex.split(origin.command)[1:] if origin.command else []
        known = (origin.objective or None, Program(tuple(words)) if words else None)
    is_typed = (objective, program) not in ((None, None), known)
    return (objective, program, True) if is_typed else (*known, False)


def signature(origin: Origin, *, create: bool = False) -> str:
    """Says that this user has named what a sweep runs, in its folder; "" if there is no key.

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
    words = json.dumps([origin.folder, origin.command, origin.objective]).encode()
    return hmac.new(key, words, "sha256").hexdigest() if len(key) == KEY_BYTES else ""


def signed(spec: SweepSpec, objective: str | None, *, typed: bool) -> SweepSpec:
    """The spec with the signature of this user, if a configuration names what it runs."""
    origin = replace(spec.origin, objective="" if typed else objective or "", signed="")
    if not typed and (origin.command or origin.objective):
        origin = replace(origin, signed=signature(origin, create=True))
    return replace(spec, origin=origin)


def checked(spec: SweepSpec) -> SweepSpec:
    """A stored spec; what another user has signed counts as not signed."""
    found = json.dumps(spec.origin.signed).encode()  # a stranger's store may hold any JSON here
    is_own = bool(spec.origin.signed) and hmac.compare_digest(
        found, json.dumps(signature(spec.origin)).encode()
    )
    return spec if is_own else replace(spec, origin=replace(spec.origin, signed=""))


class ProgramVerb(click.Command):
    """A verb whose arguments may end in `-- PROGRAM ARG ...`; it gets a `program`, or None.

    Args:
        parts: what stands behind each `--`: the name of the argument, and its words in the help.
    """

    def __init__(
        self, *args: Any, parts: tuple[str, ...] = ("program",), usage: str = "", **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.parts, self.usage = parts, usage or "[-- COMMAND [ARG]...]"

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
    return command


def load_objective(target: str | None) -> Callable[[Any], Any] | None:
    """The function that `FILE:NAME` names; None for None.

    The folder of the file becomes importable, as if Python ran it. The module does not stay in
    `sys.modules`, so that its functions are sent to workers by value: they may not have the file.

    Raises:
        UsageError: there is no such file or name, the file cannot be imported, or the name is no
            function.
    """
    if target is None:
        return None
    file, _, name = target.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError(f"--objective is FILE:NAME, such as train.py:objective, got {target!r}")
    path = Path(file).absolute()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        found = runpy.run_path(str(path), run_name=path.stem)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"--objective: {path} cannot be imported: {said}") from error
    known = {key: value for key, value in found.items() if callable(value)}
    if name not in known:
        hint = nearest(name, [key for key in known if not key.startswith("_")])
        raise UsageError(f"--objective: {file} defines no function {name!r}: {hint}")
    function: Callable[[Any], Any] = known[name]
    return function
