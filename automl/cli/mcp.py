"""`automl mcp`: the Model Context Protocol (MCP) over standard input and output.

A tool is a verb of the command line: it has its name, text, arguments and options, and runs it with
`--json` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from automl.core.arguments import check_name, json_data
from automl.errors import AutomlError, UsageError
from search_spaces.plugins import nearest

from . import cli
from .common import store_option

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

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


def _verb(tool: str) -> click.Command:
    found = cli.get_command(click.Context(cli), tool)
    assert found is not None, "it is one of ours"
    return found


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
    """JSON schema of an argument or an option."""
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

    known = {name: _verb(name) for name, needs in NEEDS.items() if needs in allowed}

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
            if name not in NEEDS:
                hint = nearest(name[:100], list(NEEDS))
                raise UsageError(f"there is no tool {name[:100]!r}: {hint}")
            if name not in known:
                raise UsageError(f"{name} is not allowed here: it needs automl mcp {NEEDS[name]}")
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
