"""The verbs that change a sweep or a trial, also while it runs, also by agents, or delete it.

`automl mcp` serves agents by the Model Context Protocol (MCP) over standard input and output. A
tool is a verb of the command line: it has its name, text, arguments and options, and runs it with
`--json` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import click

from automl.config.loading import plain_changes
from automl.control.beginning import artifacts_of
from automl.core import parse_duration
from automl.core.arguments import check_name, json_data
from automl.errors import FAILURE_KINDS, AutomlError, UsageError
from automl.ledger import Ledger
from automl.workflows import steering
from search_spaces.plugins import nearest

from . import NO_SUCCESS, SHOULD_STOP, cli
from .common import (
    emit,
    json_option,
    newest_argument,
    read_by,
    say,
    store_option,
    sweep_argument,
    writes_store,
)

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_AGENT: Final = click.option(
    "--agent", metavar="NAME", default="", help="Who runs the trial.  [default: user and host]"
)


def _metrics(words: tuple[str, ...]) -> dict[str, float] | float:
    """The metrics that `METRIC=VALUE` words name, or a single number."""
    try:
        if len(words) == 1 and "=" not in words[0]:
            return float(words[0])
        found = {name: float(value) for name, value in (text.split("=", 1) for text in words)}
    except ValueError:
        found = {}
    if "" in found or len(found) < len(words):
        rule = "a metric is METRIC=NUMBER, such as loss=0.12, and is given once"
        raise UsageError(f"{rule}; got {' '.join(words)!r}")
    return found


@click.command()
@sweep_argument
@click.option(
    "--lease",
    metavar="TIME",
    callback=read_by(parse_duration),
    help="Give the trial back after this time without a report, such as 90s or 2h.  "
    "[default: the sweep's timeout, else 60s]",
)
@_AGENT
@writes_store
@json_option
def ask(ledger: Ledger, sweep: str, lease: float | None, agent: str, as_json: bool) -> int | None:
    """Get a trial of a sweep and run it in a program of your own, in any language, anywhere.

    A running sweep answers within a second; without one, this command suggests the trial itself.
    Report steps and the end of the trial with `automl tell`. If nothing comes before the lease is
    over, the trial is tried again.

    \b
    Examples:
      automl sweep mine.yaml --create
      automl ask mine --json
      automl ask mine --lease 2h --json | jq .params

    Exit status: 3 if the sweep has no more trials to give.
    """
    answer = steering.ask(ledger, sweep, lease=lease, agent=agent)
    if as_json:
        emit(answer)
    if answer["trial"] is None:
        say(f"{sweep} gives no more trials: {answer['reason']}", err=True)
        return NO_SUCCESS
    if not as_json:
        params = "  ".join(f"{name}={value}" for name, value in answer["params"].items())
        say(f"trial {answer['trial']}, attempt {answer['attempt']}: {params}")
    return None


@click.command()
@sweep_argument
@click.argument("trial", type=click.IntRange(0))
@click.argument("metrics", metavar="[METRIC=VALUE]...", nargs=-1, callback=read_by(_metrics))
@click.option("--step", type=int, metavar="S", help="Report the metrics at this step.")
@click.option(
    "--failed",
    type=click.Choice(tuple(FAILURE_KINDS)),
    metavar="KIND",
    help="The trial failed. If it was preempted, it is tried again; the suggester learns from the "
    "others.",
)
@click.option("--message", metavar="TEXT", default="", help="Describes the failure to a person.")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    metavar="A",
    help="Attempt that `automl ask` has printed; refused if another one runs.",
)
@_AGENT
@writes_store
@json_option
def tell(
    ledger: Ledger, sweep: str, trial: int, metrics: Any, as_json: bool, **given: Any
) -> int | None:
    """End a trial that `automl ask` has given: by its metrics, or by a failure.

    With --step, the trial goes on: the metrics are a report, which renews its lease. The metrics of
    a result are added to the reported ones. You may send the same result twice. A different one, or
    one after the lease, is refused.

    \b
    Examples:
      automl tell mine 3 --step 100 loss=0.5 || automl tell mine 3
      automl tell mine 3 --attempt 1 loss=0.12 seconds=81.5
      automl tell mine 3 --failed out_of_memory --message "asked for 12 GB"

    Exit status: 10 if a trial that has reported should stop; then save a checkpoint if you can, and
    tell.
    """
    if given["step"] is not None and metrics == {}:
        raise UsageError("a report needs a metric, such as loss=0.12")
    answer = steering.tell(ledger, sweep, trial, metrics, **given)
    if as_json:
        emit(answer)
    if "stop" in answer:
        if answer["stop"]:
            say(f"trial {answer['trial']} should stop: {answer['reason']}", err=True)
            return SHOULD_STOP
        return None
    if not as_json:
        failure = f" ({answer['failure']})" if answer["failure"] else ""
        message = f": {answer['message']}" if answer["message"] else ""
        again = "; it was told before" if answer["same"] else ""
        say(f"trial {answer['trial']} is {answer['state']}{failure}{message}{again}")
    return None


@click.command()
@newest_argument
@click.option(
    "--trial", metavar="N", type=click.IntRange(0), help="Stop only this trial; the sweep goes on."
)
@writes_store
def stop(ledger: Ledger, sweep: str, trial: int | None) -> None:
    """Ask a running sweep to stop. Its trials stop at their next report, and their results count.

    To interrupt a sweep and continue it later, press Ctrl-C in its own terminal instead.

    \b
    Examples:
      automl stop nmt
      automl stop nmt --trial 12
    """
    say(steering.stop(ledger, sweep, trial))


@click.command()
@sweep_argument
@click.argument("trial", metavar="N", type=click.IntRange(0))
@writes_store
def pause(ledger: Ledger, sweep: str, trial: int) -> None:
    """Pause a trial at its next report. It goes on after `automl resume SWEEP --trial N`.

    Only a trial that goes on from a checkpoint can pause. Ctrl-C pauses the whole sweep.

    \b
    Example:
      automl pause nmt 12
    """
    say(steering.pause(ledger, sweep, trial))


@click.command()
@sweep_argument
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1)
@click.option(
    "--trial",
    metavar="N",
    type=click.IntRange(0),
    help="Try the configuration of this finished trial again, as a new trial.",
)
@writes_store
def enqueue(ledger: Ledger, sweep: str, settings: tuple[str, ...], trial: int | None) -> None:
    """Add a configuration that the sweep trains next: now if it runs, otherwise after a resume.

    A parameter that is not named has its value of the best trial so far, or its default.

    \b
    Examples:
      automl enqueue nmt learning_rate=3e-3 width=96
      automl enqueue nmt --trial 12
    """
    words = (text.partition("=") for text in settings)
    given = {name: value for name, equals, value in words if equals}
    if len(given) < len(settings):
        rule = "a setting is KEY=VALUE, such as lr=0.1, and is given once"
        raise UsageError(f"{rule}; got {' '.join(settings)!r}")
    found = steering.enqueue(ledger, sweep, given or None, trial, text=True)
    number = found["trial"]
    shown = "  ".join(f"{name}={value}" for name, value in found["params"].items())
    waits = f"trial {number} waits for automl resume {sweep}"
    say(f"{sweep} tries next: {shown}" if number is None else f"{waits}: {shown}")


@click.command("set")
@sweep_argument
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@writes_store
def set_(ledger: Ledger, sweep: str, settings: tuple[str, ...]) -> None:
    """Change a sweep: its budget, its number of workers, or what is tried of a parameter.

    A running sweep follows at once, another one after a resume. `null` removes a limit of the
    budget. A parameter takes a value, [LOW, HIGH] or a list of choices within its space, from the
    next suggestion on; `auto` is its whole range again. Earlier trials still count. The workers of
    a running sweep change only on Ray; those that are too many end after their trials.

    \b
    Examples:
      automl set nmt budget.trials=60 budget.time=3h
      automl set nmt workers=8
      automl set nmt 'workers={min: 2, max: 64}'
      automl set nmt space.precision=fp32 space.learning_rate=[1e-4,1e-3]
      automl set nmt space.attention_layout=[packed,separate] space.width=auto
    """
    say(steering.change(ledger, sweep, plain_changes(settings)))


@click.command()
@sweep_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@writes_store
def delete(ledger: Ledger, sweep: str, yes: bool) -> None:
    """Delete a sweep with its trials, checkpoints and logs. A running sweep is refused.

    Files outside of the store stay: it says where they are.

    \b
    Example:
      automl delete nmt-2
    """
    elsewhere = artifacts_of(ledger.spec(sweep))
    if not yes:
        question = f"delete {sweep} with {len(ledger.trials(sweep))} trials and their files?"
        click.confirm(question, abort=True, err=True)
    ledger.delete(sweep)
    say(f"deleted {sweep}")
    if elsewhere:
        say(f"its files at {elsewhere} stay: remove them there", err=True)


INSTRUCTIONS: Final = (
    "Sweeps of trainings: list and read them, ask for trials and tell results. If you edit code, "
    "keep a change only if `ab` answers 'better': one better run proves nothing."
)
NEEDS: Final = {  # by tool, the flags that allow it
    **dict.fromkeys(("list", "status", "trials", "best"), ""),
    **dict.fromkeys(("ask", "tell"), "--allow-write"),
    "ab": "--allow-write --allow-run",
}
OURS: Final = ("store", "as_json", "dispatcher", "ray_address")  # the server says them
_KINDS: Final = {"integer": "integer", "float": "number", "boolean": "boolean"}  # by click's names
_COMMAND: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
PROGRAMS: Final = {  # of `ab`, which stand after `--`
    "command_a": {**_COMMAND, "description": "A: a program and its arguments."},
    "command_b": {**_COMMAND, "description": "B."},
}


def _parameters(verb: click.Command) -> dict[str, click.Parameter]:
    return {one.name: one for one in verb.params if one.name and one.name not in OURS}


def schema_of(verb: click.Command) -> dict[str, Any]:
    """JSON schema of what a verb takes. A result names the attempt that it belongs to."""
    known = _parameters(verb)
    required = [name for name, one in known.items() if one.required or name == "attempt"]
    programs = PROGRAMS if verb.name == "ab" else {}
    return {
        "type": "object",
        "properties": {**{name: _schema(one) for name, one in known.items()}, **programs},
        "required": [*required, *programs],
        "additionalProperties": False,
    }


def _schema(one: click.Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _KINDS.get(one.type.name.split()[0], "string")}
    if isinstance(one.type, click.Choice):
        found["enum"] = list(one.type.choices)
    if one.name == "metrics":
        found |= {"type": "object", "additionalProperties": {"type": ["number", "string"]}}
    if help := (getattr(one, "help", None) or "").partition("  [default")[0]:
        found["description"] = help
    return found


def words_of(verb: click.Command, arguments: Mapping[str, Any], store: str) -> list[str]:
    """A verb with arguments as words of a command line.

    Raises:
        UsageError: an argument is unknown, missing, or of a wrong type.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    given = {name: value for name, value in arguments.items() if value is not None}
    if wrong := best_match(Draft202012Validator(schema_of(verb)).iter_errors(given)):
        raise UsageError(f"arguments{wrong.json_path[1:]}: {wrong.message:.500}")
    flags, places = [f"--store={store}", "--json"], list[str]()
    for name, one in _parameters(verb).items():
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool):
            flags += (one.opts if value else one.secondary_opts)[:1]
        elif name == "metrics":
            places += [f"{metric}={number}" for metric, number in value.items()]
        elif isinstance(one, click.Option):
            flags.append(f"{one.opts[0]}={value}")
        else:
            places.append(check_name(value) if name == "sweep" else str(value))
    programs = [word for name in PROGRAMS if name in given for word in ("--", *given[name])]
    ends = ["--"] if places else []  # a name of a metric is no option
    return [str(verb.name), *flags, *ends, *places, *programs]


async def run(words: list[str]) -> Any:
    """What a verb prints as JSON; what it says beside it is `said` of an object.

    Raises:
        AutomlError: it has printed none; the message is what it has said.
    """
    import anyio

    command = [sys.executable, "-m", "automl", *words]
    try:  # it ends if the client goes; Ctrl-C is the server's
        done = await anyio.run_process(
            command, stdin=subprocess.DEVNULL, check=False, start_new_session=True
        )
    except (OSError, ValueError) as error:  # too long, or a null character
        raise UsageError(f"the words of a command cannot be passed on: {error}") from error
    said = done.stderr.decode(errors="replace").strip()
    if not done.stdout:
        raise AutomlError(said.removeprefix("Error: ") or f"it ended with {done.returncode}")
    found, lines = json.loads(done.stdout), said.splitlines()
    return {**found, "said": lines[-1]} if isinstance(found, dict) and lines else found


def server_of(store: str, allowed: str) -> Server[Any]:
    """The server of a store; `allowed`: the flags that were given."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    context, names = click.Context(cli), [n for n, needs in NEEDS.items() if needs in allowed]
    known = {name: cast(click.Command, cli.get_command(context, name)) for name in names}

    def described(name: str, verb: click.Command) -> types.Tool:
        words = f"{verb.short_help}\n\n{verb.help}".replace("\b\n", "")
        return types.Tool(
            name=name,
            description=words,
            input_schema=schema_of(verb),
            annotations=types.ToolAnnotations(read_only_hint=not NEEDS[name]),
        )

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(*one) for one in known.items()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        name = params.name
        try:
            if name not in known:
                what = f"there is no tool {name[:100]!r}: {nearest(name[:100], list(NEEDS))}"
                if name in NEEDS:
                    what = f"{name} is not allowed here: it needs automl mcp {NEEDS[name]}"
                raise UsageError(what)
            found = json_data(await run(words_of(known[name], params.arguments or {}, store)))
        except AutomlError as error:
            text = types.TextContent(text=str(error))
            return types.CallToolResult(content=[text], is_error=True)
        text = types.TextContent(text=json.dumps(found, ensure_ascii=False))
        whole = found if isinstance(found, dict) else {"result": found}
        return types.CallToolResult(content=[text], structured_content=whole)

    return Server(
        "automl", instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


@click.command()
@store_option
@click.option(
    "--allow-write",
    is_flag=True,
    help="Let the client change sweeps: get trials and tell their results.",
)
@click.option(
    "--allow-run",
    is_flag=True,
    help="Let the client run programs of its own on this machine (`ab`); it keeps their runs, so "
    "it needs --allow-write too.",
)
def mcp(store: str, allow_write: bool, allow_run: bool) -> None:
    """Serve the sweeps of a store to an agent by the Model Context Protocol (MCP).

    The client starts this program and speaks to it by standard input and output. Its tools list and
    read sweeps; with --allow-write also ask and tell; with --allow-run too, ab. It needs
    automl-sweep[mcp].

    \b
    Examples:
      automl mcp --store runs
      automl mcp --allow-write --allow-run
    """
    try:
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise UsageError("automl mcp needs the MCP SDK: pip install 'automl-sweep[mcp]'") from error

    allowed = "--allow-write" * allow_write + " --allow-run" * (allow_write and allow_run)

    async def serve() -> None:
        server = server_of(store, allowed)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())
