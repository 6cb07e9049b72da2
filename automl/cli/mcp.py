"""`automl mcp`: the Model Context Protocol (MCP) over standard input and output.

A tool is a verb of the command line: it has its name, text, arguments and options, and runs it with
`--json` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from automl.core.arguments import check_name
from automl.errors import AutomlError, UsageError
from search_spaces.plugins import nearest

from . import cli
from .common import store_option

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, Tool

MAX_AT_ONCE: Final = 8  # processes of verbs
END_SECONDS: Final = 30.0  # for a verb to end once the client has gone
INSTRUCTIONS: Final = (
    "Sweeps of trainings: list and read them, ask for trials and tell results. If you edit code, "
    "keep a change only if `ab` answers 'better': one better run proves nothing."
)
OURS: Final = ("store", "as_json", "dispatcher", "ray_address")  # the server says them
_COMMAND: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_KINDS: Final = {"integer": "integer", "float": "number", "boolean": "boolean"}  # by click's names
PROGRAMS: Final = {  # of `ab`, which stand after `--`
    "command_a": {**_COMMAND, "description": "A: a program and its arguments."},
    "command_b": {**_COMMAND, "description": "B."},
}


@dataclass(frozen=True)
class McpTool:
    """A tool of the server.

    Args:
        verb: that it runs.
        needs: what the client must be allowed.
        part: of the answer that is returned; "" for all.
    """

    verb: str
    needs: Literal["", "write", "run"] = ""
    part: str = ""

    @cached_property
    def command(self) -> click.Command:
        """The verb."""
        found = cli.get_command(click.Context(cli), self.verb)
        assert found is not None, "it is one of ours"
        return found

    @cached_property
    def parameters(self) -> dict[str, click.Parameter]:
        """The arguments and options that a client may give."""
        return {one.name: one for one in self.command.params if one.name and one.name not in OURS}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of what it takes. A result names the attempt that it belongs to."""
        known = {name: _schema(one) for name, one in self.parameters.items()}
        required = [name for name, one in self.parameters.items() if one.required]
        programs = PROGRAMS if self.verb == "ab" else {}
        return {
            "type": "object",
            "properties": {**known, **programs},
            "required": [*required, *programs, *(["attempt"] if "attempt" in known else [])],
            "additionalProperties": False,
        }

    def described(self, name: str) -> Tool:
        """The tool as a client sees it."""
        import mcp_types as types

        words = f"{self.command.short_help}\n\n{self.command.help}".replace("\b\n", "")
        return types.Tool(
            name=name,
            description="Of `best`, only what is recommended." if self.part else words,
            input_schema=self.schema,
            annotations=types.ToolAnnotations(read_only_hint=not self.needs),
        )

    def words(self, given: Mapping[str, Any], store: str) -> list[str]:
        """The verb as words of a command line.

        Raises:
            UsageError: an argument is unknown, missing, or of a wrong type.
        """
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        given = {name: value for name, value in given.items() if value is not None}
        if wrong := best_match(Draft202012Validator(self.schema).iter_errors(given)):
            raise UsageError(f"arguments{wrong.json_path[1:]}: {wrong.message:.500}")
        flags, places = [f"--store={store}", "--json"], list[str]()
        for name, one in self.parameters.items():
            value = given.get(name, False)
            if value is False:
                continue
            if name == "metrics":
                places += [f"{metric}={number}" for metric, number in value.items()]
            elif isinstance(one, click.Option):
                flags.append(one.opts[0] if value is True else f"{one.opts[0]}={value}")
            else:
                places.append(check_name(value) if name == "sweep" else str(value))
        commands = [word for name in PROGRAMS if name in given for word in ("--", *given[name])]
        if places:
            places.insert(0, "--")  # a name of a metric is no option
        return [self.verb, *flags, *places, *commands]


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


TOOLS: Final = {
    **{verb: McpTool(verb) for verb in ("list", "status", "trials", "best")},
    "recommended": McpTool("best", part="recommended"),
    **{verb: McpTool(verb, "write") for verb in ("ask", "tell")},
    "ab": McpTool("ab", "run"),
}


class McpTools:
    """The tools that a client may use. Used from one event loop.

    Args:
        store: folder or database URL.
        allow_write: whether it may change sweeps.
        allow_run: whether it may run programs too.
    """

    def __init__(self, store: str, *, allow_write: bool, allow_run: bool) -> None:
        self._store = store
        self._allowed = {"": True, "write": allow_write, "run": allow_write and allow_run}
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    def described(self) -> list[Tool]:
        """The tools that are allowed."""
        allowed = self._allowed
        return [one.described(name) for name, one in TOOLS.items() if allowed[one.needs]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a tool, as plain data.

        Raises:
            AutomlError: there is no such tool, it is not allowed, its arguments are wrong, or it
                has failed.
        """
        tool = TOOLS.get(name)
        if tool is None:
            raise UsageError(f"there is no tool {name[:100]!r}: {nearest(name[:100], list(TOOLS))}")
        if not self._allowed[tool.needs]:
            flags = "--allow-write" + (" --allow-run" if tool.needs == "run" else "")
            raise UsageError(f"{name} is not allowed here: it needs automl mcp {flags}")
        found = await self._run(tool.words(arguments, self._store))
        return found[tool.part] if tool.part else found

    async def _run(self, words: list[str]) -> Any:
        """What a verb prints as JSON; what it says beside it is `said` of an object.

        Raises:
            AutomlError: it has printed none; the message is what it has said.
        """
        async with self._room:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "automl", *words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is the server's
                )
            except (OSError, ValueError) as error:  # too long, or a null character
                raise UsageError(f"the words of a command cannot be passed on: {error}") from error
            try:
                out, err = await process.communicate()
            finally:
                await asyncio.shield(_ended(process))
        said = err.decode(errors="replace").strip()
        if not out:
            raise AutomlError(said.removeprefix("Error: ") or f"it ended with {process.returncode}")
        found = json.loads(out)
        lines = said.splitlines()
        return {**found, "said": lines[-1]} if isinstance(found, dict) and lines else found


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a verb that still runs: a sweep then stops its trials and stays resumable."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()


def server_of(tools: McpTools) -> Server[Any]:
    """The server of these tools."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from automl.core.arguments import json_data

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools.described())

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> CallToolResult:
        try:
            found = json_data(await tools.call(params.name, params.arguments or {}))
        except AutomlError as error:
            said = types.TextContent(text=str(error))
            return types.CallToolResult(content=[said], is_error=True)
        text = types.TextContent(text=json.dumps(found, ensure_ascii=False))
        whole = found if isinstance(found, dict) else {"result": found}
        return types.CallToolResult(content=[text], structured_content=whole)

    return Server(
        "automl",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
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

    async def serve() -> None:
        server = server_of(McpTools(store, allow_write=allow_write, allow_run=allow_run))
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(serve())
