"""`automl mcp`: the Model Context Protocol (MCP) over standard input and output.

A tool is an action of `automl.actions`: it has its name, text and arguments, and runs the verb with
`--json` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from automl.actions import ACTIONS, arguments
from automl.actions.action import Action, Argument
from automl.core.arguments import check_name
from automl.errors import AutomlError, UsageError
from search_spaces.plugins import nearest

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, Tool

READERS: Final = ("list", "status", "trials", "best")
WRITERS: Final = ("ask", "tell")
RECOMMENDED: Final = "recommended"  # a part of what `best` answers
RUNNERS: Final = ("ab",)
MAX_AT_ONCE: Final = 8  # processes of verbs
END_SECONDS: Final = 30.0  # for a verb to end once the client has gone
INSTRUCTIONS: Final = (
    "Sweeps of trainings: list and read them, ask for trials and tell results. If you edit code, "
    "keep a change only if `ab` answers 'better': one better run proves nothing."
)


@dataclass(frozen=True)
class McpTool:
    """A tool of the server.

    Args:
        action: the verb that it runs.
        needs: what the client must be allowed.
        part: of the answer that is returned; "" for all.
    """

    action: Action
    needs: Literal["", "write", "run"] = ""
    part: str = ""

    @property
    def arguments(self) -> list[Argument]:
        """What it takes."""
        apart = (arguments.STORE.name, arguments.JSON.name)
        return [one for one in self.action.arguments if one.on != "shell" and one.name not in apart]

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": {one.name: _schema(one) for one in self.arguments},
            "required": [one.name for one in self.arguments if one.required],
            "additionalProperties": False,
        }

    def described(self, name: str) -> Tool:
        """The tool as a client sees it."""
        import mcp_types as types

        words = f"{self.action.summary}\n\n{self.action.help}"
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
        self._check(given)
        flags, places, commands = [f"--store={store}", "--json"], list[str](), list[str]()
        for one in self.arguments:
            value = given.get(one.name)
            if value is None or value is False:
                continue
            if one.type == "command":
                commands += ["--", *value]
            elif one.type == "metrics":
                places += [f"{name}={number}" for name, number in value.items()]
            elif one.flag:
                flags.append(one.flag if value is True else f"{one.flag}={value}")
            else:
                places.append(check_name(value) if one.type == "sweep" else str(value))
        return [self.action.name, *flags, *places, *commands]

    def _check(self, given: Mapping[str, Any]) -> None:
        known = {one.name: one for one in self.arguments}
        for name, value in given.items():
            if name not in known:
                raise UsageError(
                    f"there is no argument {name[:100]!r}: {nearest(name, list(known))}"
                )
            kinds = _KINDS[_schema(known[name])["type"]]
            wrong = not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)
            if value is not None and (wrong or not _words_ok(value)):
                raise UsageError(f"{name} must be: {_schema(known[name])['type']}, got {value!r}")
        if lacks := [name for name, one in known.items() if one.required and name not in given]:
            raise UsageError(f"the arguments lack {', '.join(lacks)}")


_TYPES: Final[Mapping[Any, str]] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    "metrics": "object",
    "command": "array",
}
_KINDS: Final[Mapping[str, Any]] = {
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "string": str,
}


def _schema(argument: Argument) -> dict[str, Any]:
    """JSON schema of an argument."""
    found: dict[str, Any] = {"type": _TYPES.get(argument.type, "string")}
    if isinstance(argument.type, tuple):
        found["enum"] = list(argument.type)
    if argument.type == "metrics":
        found["additionalProperties"] = {"type": ["number", "string"]}
    if argument.type == "command":
        found["items"] = {"type": "string"}
    if help := argument.help.partition("  [default")[0]:
        found["description"] = help
    return found


def _words_ok(value: Any) -> bool:
    """Whether the words of a command are texts, and the metrics are numbers."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(word, str) for word in value)
    if isinstance(value, dict):
        return all(isinstance(number, int | float | str) for number in value.values())
    return True


def tools_of() -> dict[str, McpTool]:
    """Every tool by name."""
    return {
        **{name: McpTool(ACTIONS[name]) for name in READERS},
        RECOMMENDED: McpTool(ACTIONS["best"], part=RECOMMENDED),
        **{name: McpTool(ACTIONS[name], "write") for name in WRITERS},
        **{name: McpTool(ACTIONS[name], "run") for name in RUNNERS},
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
        self._tools = tools_of()
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    def described(self) -> list[Tool]:
        """The tools that are allowed."""
        tools = self._tools.items()
        return [tool.described(name) for name, tool in tools if self._allowed[tool.needs]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a tool, as plain data.

        Raises:
            AutomlError: there is no such tool, it is not allowed, its arguments are wrong, or it
                has failed.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise UsageError(
                f"there is no tool {name[:100]!r}: {nearest(name[:100], list(self._tools))}"
            )
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


def mcp(store: str, allow_write: bool, allow_run: bool) -> None:
    """Serve a store until standard input ends.

    Raises:
        UsageError: the SDK is not installed.
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
