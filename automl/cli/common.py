"""What several verbs share: their options, opening of the store, and output."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import reduce, wraps
from typing import Any, Final

import click

from automl.core.arguments import json_data
from automl.core.resources import LIMITS
from automl.core.spec import DISPATCHERS, KEYS
from automl.core.text import printable
from automl.errors import UsageError
from automl.ledger import Ledger
from automl.ledger.database import refuse_password
from automl.report.terminal import console, table

Decorator = Callable[[Any], Any]
STORE: Final = KEYS["store"].default
WIDE: Final = 200  # columns, if there is no terminal
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


def whole(least: int, most: int | None = None) -> click.IntRange:
    """A whole number within bounds."""
    found = click.IntRange(least, most)
    found.name = "integer"  # no text is "a valid integer range"
    return found


def read_by(parse: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback that reads a value which is given."""
    return lambda context, parameter, value: None if value is None else parse(value)


def _store(text: str) -> str:
    refuse_password(text)
    return text


def newest_sweep(ledger: Ledger) -> str:
    """The name of the sweep that was created last; raises UsageError if there is none."""
    newest = max(ledger.sweeps(), key=lambda info: info.created, default=None)
    if newest is None:
        raise UsageError(f"there is no sweep in {ledger.name}: start one with automl sweep")
    return newest.name


def _with_function(text: str) -> str:
    """FILE:NAME; the function of a FILE alone is `objective`."""
    return text if ":" in text or not text else f"{text}:objective"


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
    metavar="FILE[:NAME]",
    callback=read_by(_with_function),
    help="Function of your own to tune instead of a workload, such as train.py:objective. "
    "Without NAME, it is 'objective'.",
)


def dispatching(default: str = "auto") -> Decorator:
    """The options of where trials run; `default` is said in the help."""
    names = click.Choice(DISPATCHERS)
    where = setting("dispatcher", default, type=names, metavar=None)
    return several(where, setting("ray_address"))


def trial_option(help: str) -> Decorator:
    """The option `--trial`."""
    return click.option("--trial", metavar="N", type=whole(0), help=help)


def output_option(default: str, metavar: str = "FILE", help: str = "File to write.") -> Decorator:
    """The option `--output`."""
    words = f"{help}  [default: {default}]"
    return click.option("--output", "-o", metavar=metavar, help=words)


def _opens(write: bool) -> Decorator:
    def decorated(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def inner(store: str, **given: Any) -> Any:
            with opened(store, write=write) as ledger:
                if "sweep" in given and given["sweep"] is None:
                    given["sweep"] = newest_sweep(ledger)
                    if not given.get("as_json"):
                        say(f"sweep {given['sweep']}, the newest of {store}", err=True)
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
