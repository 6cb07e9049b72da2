"""`automl mcp`, driven by the SDK's client: what a client sees, may do, and may not do."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import automl, sweep

mcp = pytest.importorskip("mcp")
ROOT = Path(__file__).parents[3]
READ = {"list", "status", "trials", "best"}
WRITE = {"ask", "tell"}
Call = Callable[..., Awaitable[Any]]


def served(flags: list[str], talk: Callable[[Call], Awaitable[None]]) -> set[str]:
    """Start the server, let `talk` call its tools, and return their names."""

    async def session() -> set[str]:
        from mcp.client.stdio import stdio_client

        server = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "automl", "mcp", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        async with stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()
            names = {tool.name for tool in (await client.list_tools()).tools}

            async def call(name: str, **arguments: Any) -> Any:
                found = await client.call_tool(name, arguments)
                return (
                    found.content[0].text if found.is_error else json.loads(found.content[0].text)
                )

            await talk(call)
            return names

    with ThreadPoolExecutor(1) as thread:  # this one may have a loop, left by a browser's tests
        return thread.submit(asyncio.run, session()).result()


def log(folder: Path) -> bytes:
    return (folder / ".automl" / "ledger.sqlite3").read_bytes()


def test_without_a_permission_a_client_reads_and_changes_nothing(folder: Path) -> None:
    assert sweep("space.kind=[good]", "--trials", "8").exit_code == 0
    before = log(folder)

    async def talk(call: Call) -> None:
        assert (await call("list"))[0]["name"] == "toy"
        assert (await call("status", sweep="toy"))["num_completed"] == 8
        assert len(await call("trials", sweep="toy")) == 8
        assert (await call("best", sweep="toy"))["recommended"]["params"]["kind"] == "good"
        for name, arguments in (
            ("ask", {"sweep": "toy"}),
            ("tell", {"sweep": "toy", "trial": 0, "attempt": 1, "metrics": {"loss": 0.0}}),
        ):
            assert await call(name, **arguments) == (
                f"{name} is not allowed here: it needs automl mcp --allow-write"
            )
        touched = ["touch", str(folder / "touched")]
        said = await call("ab", metric="loss", command_a=touched, command_b=touched)
        assert said.endswith("it needs automl mcp --allow-write --allow-run")

    assert served([], talk) == READ
    assert log(folder) == before
    assert not (folder / "touched").exists()


def test_hostile_arguments_are_one_clear_error(folder: Path) -> None:
    assert automl("sweep", "toy.yaml", "--create").exit_code == 0

    async def talk(call: Call) -> None:
        for name, arguments, said in (
            ("status", {"sweep": "--help"}, "a name has 1 to 64 of"),
            ("status", {"sweep": "../toy"}, "a name has 1 to 64 of"),
            ("status", {"sweep": "x" * 10_000}, "a name has 1 to 64 of"),
            ("status", {"sweep": "nmt"}, "there is no sweep named 'nmt'"),
            ("status", {"store": "/elsewhere"}, "'store' was unexpected"),
            ("trials", {"sweep": 3}, "arguments.sweep: 3 is not of type 'string'"),
            ("tell", {"sweep": "toy", "trial": 0, "attempt": 1, "metrics": {"a": []}}, "metrics"),
            (
                "tell",
                {"sweep": "toy", "trial": 10**40, "attempt": 1, "metrics": {}},
                "at most 9223372036854775807",
            ),
            ("tell", {"sweep": "toy", "trial": 7, "attempt": 1, "metrics": {}}, "no trial 7"),
            (
                "tell",
                {"sweep": "toy", "trial": 7, "attempt": 1, "metrics": {"--store": 1}},
                "no trial",
            ),
            ("tell", {"sweep": "toy"}, "is a required property"),
            ("no-such-tool", {}, "there is no tool 'no-such-tool'"),
            ("ab", {"metric": "loss"}, "--allow-write --allow-run"),
        ):
            answer = await call(name, **arguments)
            assert isinstance(answer, str), (name, answer)
            assert said in answer, (name, answer)
            assert "Traceback" not in answer
            assert len(answer) < 2000

    assert served(["--allow-write"], talk) == READ | WRITE


def test_an_agent_runs_trials(folder: Path) -> None:
    assert automl("sweep", "toy.yaml", "--create").exit_code == 0

    async def talk(call: Call) -> None:
        asked = await call("ask", sweep="toy")
        assert (asked["trial"], asked["attempt"]) == (0, 1)
        told = {"sweep": "toy", "trial": 0, "attempt": 1}
        assert (await call("tell", **told, step=1, metrics={"loss": 0.5}))["stop"] is False
        assert (await call("tell", **told, metrics={"loss": 0.4}))["state"] == "completed"
        assert (await call("tell", **told, metrics={"loss": 0.4}))["same"] is True
        assert (await call("best", sweep="toy"))["value"] == 0.4

    served(["--allow-write"], talk)


def test_an_agent_compares_its_change_if_it_may_run_programs(folder: Path) -> None:
    (folder / "train.py").write_text("import sys\nprint('loss', sys.argv[1])\n")
    train = [sys.executable, "-S", "train.py"]

    async def talk(call: Call) -> None:
        found = await call("ab", metric="loss", command_a=[*train, "2"], command_b=[*train, "1"])
        assert (found["answer"], found["effect"], found["runs"]) == ("better", 1.0, 8)
        assert found["said"].endswith("kept as ab.")
        for words in (["\0"], ["--"], ["x" * 200_000]):
            said = await call("ab", metric="loss", command_a=words, command_b=train)
            assert isinstance(said, str), said
            assert "Traceback" not in said

    assert served(["--allow-write", "--allow-run"], talk) == READ | WRITE | {"ab"}
    assert [one["name"] for one in json.loads(automl("list", "--json").stdout)] == ["ab"]
