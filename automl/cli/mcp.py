"""`automl mcp`: the Model Context Protocol (MCP) over standard input and output.

A tool is an action of `automl.actions`: it has its name, text and arguments. Tools that read, and
`ab`, run the verb with `--json` in a process of their own. Tools of agents are operations of the
studio, done by its process of actions; it is started only if the client may write.
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

from automl.actions import ACTIONS
from automl.actions.action import Action, Argument, Operation
from automl.core.names import check_name
from automl.errors import AutomlError, UsageError
from search_spaces.plugins import nearest

from .common import opened

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp_types import CallToolResult, Tool
    from pydantic import BaseModel

READERS: Final = ("list", "status", "trials", "best", "predict")
RECOMMENDED: Final = "recommended"  # a part of what `best` answers
RUNNERS: Final = ("ab",)
MAX_AT_ONCE: Final = 8  # processes of verbs
END_SECONDS: Final = 30.0  # for a verb to end once the client has gone
INSTRUCTIONS: Final = (
    "Sweeps of trainings: list and read them, ask their surrogates (predict). If you edit code, "
    "keep a change only if `ab` answers 'better': one better run proves nothing."
)


@dataclass(frozen=True)
class McpTool:
    """A tool of the server.

    Args:
        action: that it is.
        operation: of the action; None if the verb is run.
        needs: what the client must be allowed.
        part: of the answer that is returned; "" for all.
    """

    action: Action
    operation: Operation | None = None
    needs: Literal["", "write", "run"] = ""
    part: str = ""

    @property
    def arguments(self) -> list[Argument]:
        """What it takes."""
        left_out = self.operation.without if self.operation else ()
        return [
            one for one in self.action.arguments if one.on != "shell" and one.name not in left_out
        ]

    @cached_property
    def schema(self) -> type[BaseModel]:
        """Of its arguments."""
        from automl.studio.bodies import schema_of

        return schema_of(self.action.name.title().replace("-", ""), self.arguments)

    def described(self, name: str) -> Tool:
        """The tool as a client sees it."""
        import mcp_types as types

        words = f"{self.action.summary}\n\n{self.action.help}"
        return types.Tool(
            name=name,
            description="Of `best`, only what is recommended." if self.part else words,
            input_schema=self.schema.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=not self.needs),
        )

    def words(self, given: Mapping[str, Any], store: str) -> list[str]:
        """The verb as words of a command line."""
        flags, places = [f"--store={store}", "--json"], []
        for one in self.arguments:
            value = given.get(one.name)
            if value in (None, False) or one.type == "command":
                continue
            if one.type == "sweep":
                check_name(value)
            if not one.flag:
                places.append(str(value))
            else:
                flags.append(one.flag if value is True else f"{one.flag}={value}")
        commands = [
            given[one.name]
            for one in self.arguments
            if given.get(one.name) and one.type == "command"
        ]
        behind = [word for command in commands for word in ("--", *command)]
        return [*self.action.name.split(), *flags, *places, *behind]


def tools_of() -> dict[str, McpTool]:
    """Every tool by name."""
    agents = [one for one in ACTIONS.values() if one.role == "agent"]
    return {
        **{name: McpTool(ACTIONS[name]) for name in READERS},
        RECOMMENDED: McpTool(ACTIONS["best"], part=RECOMMENDED),
        **{
            operation.name: McpTool(action, operation, "write")
            for action in agents
            for operation in action.operations
        },
        **{name: McpTool(ACTIONS[name], needs="run") for name in RUNNERS},
    }


class McpTools:
    """The tools that a client may use. Used from one event loop.

    Args:
        store: folder or database URL.
        allow_write: whether it may change sweeps.
        allow_run: whether it may run programs too.
    """

    def __init__(self, store: str, *, allow_write: bool, allow_run: bool) -> None:
        from automl.studio.actions import ANSWER_SECONDS, IDLE_SECONDS, SILENT
        from automl.studio.child import ChildProcess

        self._store = store
        self._allowed = {"": True, "write": allow_write, "run": allow_write and allow_run}
        self._tools = tools_of()
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._actions = ChildProcess(
            "automl.studio.action_process", store, ANSWER_SECONDS, SILENT, IDLE_SECONDS
        )
        self._surrogates = ChildProcess(
            "automl.studio.surrogate_process", store, ANSWER_SECONDS, SILENT
        )

    def described(self) -> list[Tool]:
        """The tools that are allowed."""
        tools = self._tools.items()
        return [tool.described(name) for name, tool in tools if self._allowed[tool.needs]]

    async def end(self) -> None:
        """End the processes."""
        await self._actions.end()
        await self._surrogates.end()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a tool, as plain data.

        Raises:
            AutomlError: there is no such tool, it is not allowed, its arguments are wrong, or it
                has failed.
        """
        from automl.studio.actions import MAX_BYTES, RefusedError, checked

        tool = self._tools.get(name)
        if tool is None:
            raise UsageError(
                f"there is no tool {name[:100]!r}: {nearest(name[:100], list(self._tools))}"
            )
        if not self._allowed[tool.needs]:
            flags = "--allow-write" + (" --allow-run" if tool.needs == "run" else "")
            raise UsageError(f"{name} is not allowed here: it needs automl mcp {flags}")
        content = json.dumps(arguments).encode()
        if len(content) > MAX_BYTES:
            raise UsageError(f"arguments have at most {MAX_BYTES:,} bytes, got {len(content):,}")
        try:
            given = checked(tool.schema, content)
        except RefusedError as error:
            raise UsageError(f"{name}: {error}") from error
        if tool.operation is not None:
            return await self._operate(tool.operation, given)
        if name == "predict":
            self._check(given["sweep"])
            return await self._surrogates.ask({"ask": "predict", **given})
        found = await self._run(tool.words(given, self._store))
        return found[tool.part] if tool.part else found

    async def _operate(self, operation: Operation, given: dict[str, Any]) -> dict[str, Any]:
        sweep, trial = given.pop("sweep"), given.pop("trial", None)
        self._check(sweep)
        question = {"operation": operation.name, "sweep": sweep, "trial": trial, "body": given}
        return await self._actions.ask(question)

    def _check(self, sweep: str) -> None:
        """Raise UsageError if there is no such store or sweep."""
        with opened(self._store) as ledger:
            ledger.spec(check_name(sweep))

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

    from automl.core.plain_data import json_data

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
        tools = McpTools(store, allow_write=allow_write, allow_run=allow_run)
        server = server_of(tools)
        try:
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
        finally:
            await tools.end()

    asyncio.run(serve())
