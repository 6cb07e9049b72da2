"""Agents and people at the command line: `ask`, `tell`, `stop`, `pause`, `enqueue`, `set`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cli_sweeps import CONFIG, ROOT, automl, parsed, ran, refused
from pages import blocks

from automl import load


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a sweep that agents serve; trial 0 runs."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "toy.yaml").write_text(CONFIG)
    store = ("--store", str(folder / "runs"))
    made = ran("sweep", str(folder / "toy.yaml"), "--create", *store)
    assert made.output == f"toy is ready for agents: automl ask toy {' '.join(store)}\n"
    ran("ask", "toy", *store)
    return folder / "runs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tell", "toy", "0", "loss"), "a metric is METRIC=NUMBER, such as loss=0.12, and is"),
        (("tell", "toy", "0", "loss=low"), "got 'loss=low'"),
        (("tell", "toy", "0", "loss=1", "loss=2"), "is given once; got 'loss=1 loss=2'"),
        (("tell", "toy", "0", "acc=1"), "no metric 'loss' was reported"),
        (("tell", "toy", "9", "loss=1"), "there is no trial 9"),
        (("tell", "toy", "0.3"), "'0.3' is not a valid integer"),
        (("tell", "toy", "0", "--step", "1"), "a report needs a metric"),
        (("tell", "toy", "0", "--failed", "crashed", "loss=1"), "neither a step nor metrics"),
        (("tell", "toy", "0", "--step", "first"), "'first' is not a valid integer"),
        (("ask", "toy", "--lease", "soon"), "soon"),
        (("ask", "yot"), "no sweep named 'yot'"),
        (("stop", "toy", "--trial", "9"), "there is no trial 9"),
        (("enqueue", "toy", "--trial", "9"), "there is no trial 9"),
        (("enqueue", "toy", "lr"), "a setting is KEY=VALUE, such as lr=0.1, and is given once"),
        (("enqueue", "toy", "lr=0.1", "lr=0.2"), "is given once; got 'lr=0.1 lr=0.2'"),
        (("enqueue", "toy"), "give values of parameters, or the number of a trial"),
        (("set", "toy", "trials=9"), "'trials' cannot be set: did you mean 'budget.trials'?"),
        (("set", "toy", "9"), "an override is KEY=VALUE"),
    ],
)
def test_a_wrong_argument_is_status_2(
    served: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(*arguments, "--store", str(served))


def test_people_steer_trials_of_agents(served: Path, tmp_path: Path) -> None:
    shutil.copytree(served, tmp_path / "copy")
    store = ("--store", str(tmp_path / "copy"))
    stopped = ran("stop", "toy", "--trial", "0", *store)
    assert stopped.output == "trial 0 stops at its next report\n"
    result = automl("tell", "toy", "0", "--step", "1", "loss=0.2", *store)
    assert (result.exit_code, "stopped by" in result.output) == (10, True)
    ran("tell", "toy", "0", *store)
    again = refused("stop", "toy", "--trial", "0", *store, status=1)
    assert "trial 0 is stopped already" in again
    asked = str(parsed("ask", "toy", *store)["trial"])
    assert "cannot pause" in refused("pause", "toy", asked, *store, status=1)
    assert "only a paused one" in refused("resume", "toy", "--trial", "1", *store, status=1)
    ran("enqueue", "toy", "--trial", "0", *store)
    states = [trial["state"] for trial in parsed("trials", "toy", *store)]
    assert states == ["stopped", "running", "waiting"]
    assert ran("stop", "toy", "--trial", "2", *store).output == "trial 2 is stopped\n"
    told = ran("set", "toy", "budget.trials=9", *store).stdout
    assert told == "the budget is now: trials 9\n"
    assert "give no more" not in ran("ask", "toy", *store).output
    assert "2 stop at their agents' next reports" in ran("stop", "toy", *store).output
    assert "it is finished" in refused("ask", "toy", *store, status=3)
    assert automl("tell", "toy", "1", "--step", "1", "loss=1", *store).exit_code == 10


def test_an_agent_in_bash_runs_a_whole_sweep(tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    script, *_ = blocks(ROOT / "docs" / "guides" / "agents.md", "bash")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nspace: {x: {low: 0.0, high: 1.0}}\ngoals: minimize loss\n"
        "suggester: sobol\nbudget: {trials: 1}\n"
    )
    store = tmp_path / "runs"
    ran("sweep", str(tmp_path / "mine.yaml"), "--create", "--store", str(store))
    program = tmp_path / "bin" / "automl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m automl "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        ["bash", "-eu", "-c", script, "agent", "runs"], cwd=tmp_path, env=environment, check=True
    )
    found = load("mine", store)
    assert (found.state, [len(trial.reports) for trial in found.trials]) == ("finished", [3])
    assert found.trials[0].state == "completed"


# `automl mcp`, driven by the SDK's client: what a client sees, may do, and may not do.

READ = {"list", "status", "trials", "best"}
WRITE = {"ask", "tell"}
Call = Callable[..., Awaitable[Any]]


@pytest.fixture
def served_sweep(folder: Path) -> Path:
    """A folder with a sweep for agents."""
    ran("sweep", "toy.yaml", "--create")
    return folder


def connected(flags: list[str], talk: Callable[[Call], Awaitable[None]]) -> set[str]:
    """Start the server, let `talk` call its tools, and return their names."""
    mcp = pytest.importorskip("mcp")

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


def test_without_a_permission_a_client_reads_and_changes_nothing(served_sweep: Path) -> None:
    before = log(served_sweep)

    async def talk(call: Call) -> None:
        assert (await call("list"))[0]["name"] == "toy"
        for name, arguments in (
            ("ask", {"sweep": "toy"}),
            ("tell", {"sweep": "toy", "trial": 0, "attempt": 1, "metrics": {"loss": 0.0}}),
        ):
            assert await call(name, **arguments) == (
                f"{name} is not allowed here: it needs automl mcp --allow-write"
            )
        touched = ["touch", str(served_sweep / "touched")]
        said = await call("ab", metric="loss", command_a=touched, command_b=touched)
        assert said.endswith("it needs automl mcp --allow-write --allow-run")

    assert connected([], talk) == READ
    assert log(served_sweep) == before
    assert not (served_sweep / "touched").exists()


HOSTILE: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("status", {"sweep": "--help"}, "a name has 1 to 64 of"),
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
    ("tell", {"sweep": "toy", "trial": 7, "attempt": 1, "metrics": {"--store": 1}}, "no trial"),
    ("tell", {"sweep": "toy"}, "is a required property"),
    ("no-such-tool", {}, "there is no tool 'no-such-tool'"),
    ("ab", {"metric": "loss"}, "--allow-write --allow-run"),
)


def test_an_agent_runs_trials_and_hostile_arguments_are_one_clear_error(served_sweep: Path) -> None:
    async def talk(call: Call) -> None:
        for name, arguments, said in HOSTILE:
            answer = await call(name, **arguments)
            assert isinstance(answer, str), (name, answer)
            assert said in answer, (name, answer)
            assert "Traceback" not in answer
            assert len(answer) < 2000
        asked = await call("ask", sweep="toy")
        assert (asked["trial"], asked["attempt"]) == (0, 1)
        told = {"sweep": "toy", "trial": 0, "attempt": 1}
        assert (await call("tell", **told, step=1, metrics={"loss": 0.5}))["stop"] is False
        assert (await call("tell", **told, metrics={"loss": 0.4}))["state"] == "completed"
        assert (await call("best", sweep="toy"))["value"] == 0.4

    assert connected(["--allow-write"], talk) == READ | WRITE


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

    assert connected(["--allow-write", "--allow-run"], talk) == READ | WRITE | {"ab"}
    assert [one["name"] for one in parsed("list")] == ["ab"]
