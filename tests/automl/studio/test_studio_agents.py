"""Agents over HTTP, with and without a controller; the OpenAPI document says what they may send."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from objectives import make_spec
from openapi_spec_validator import validate
from pages import blocks
from processes import running
from sources import ROOT
from studio_stores import Client, serving

from automl.actions import OPERATIONS
from automl.ledger import Ledger
from automl.studio.tokens import Role
from search_spaces import Float, Space


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    """A function that asks the studio of a sweep without a controller as an agent."""
    created(tmp_path)
    with serving(str(tmp_path)) as client:
        yield asking(client)


def created(store: Path, **fields: Any) -> None:
    ledger = Ledger.open(store, create=True)
    ledger.create_sweep(make_spec(**{"trials": 3, "suggester": "sobol", **fields}))
    ledger.close()


def asking(client: Client) -> Any:
    def ask(path: str, status: int = 200, **body: Any) -> Any:
        if "trials/" in path:
            body.setdefault("attempt", 1)
        found, answer = client.post(f"test/{path}", body, Role.AGENT)
        assert found == status, answer
        return answer

    ask.client = client  # type: ignore[attr-defined]
    return ask


def test_an_agent_runs_a_sweep_from_the_first_trial_to_the_last(agent: Any, tmp_path: Path) -> None:
    seen = []
    while (asked := agent("ask", agent="ann", lease=600.0))["trial"] is not None:
        valid("AskAnswer", asked)
        trial = f"trials/{asked['trial']}"
        step = agent(f"{trial}/report-step", step=1, metrics={"loss": 2.0}, attempt=1)
        valid("ReportStepAnswer", step)
        assert step["stop"] is False
        told = agent(f"{trial}/tell", metrics={"loss": asked["params"]["lr"]}, attempt=1)
        valid("TellAnswer", told)
        assert (told["state"], told["same"]) == ("completed", False)
        again = agent(f"{trial}/tell", metrics={"loss": asked["params"]["lr"]}, attempt=1)
        assert again["same"] is True
        seen.append(asked["params"])
    valid("AskAnswer", asked)
    assert asked["reason"] == "it is finished"
    trials = agent.client.get("/api/sweeps/test/trials")
    assert [one["params"] for one in trials] == seen
    assert len(seen) == 3
    ledger = Ledger.open(tmp_path, readonly=True)
    assert [one.by for one in ledger.commands("test") if one.kind == "ask"] == ["ann"] * 4
    assert {one.by for one in ledger.commands("test") if one.kind == "tell"} == {"agent@127.0.0.1"}
    ledger.close()
    Ledger.open(tmp_path).check()


def test_failures_and_special_numbers_are_told(agent: Any) -> None:
    agent("ask")
    found = agent("trials/0/fail", failure="out_of_memory", message="12 GB")
    assert (found["state"], found["failure"], found["message"]) == (
        "failed",
        "out_of_memory",
        "12 GB",
    )
    agent("ask")
    agent("trials/1/report-step", step=1, metrics={"loss": "nan", "size": "inf"})
    trial = agent.client.get("/api/sweeps/test/trials/1")
    assert trial["metrics"] == {"loss": "nan", "size": "inf"}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("ask", {"lease": 0}, 400, "lease: input should be greater than 0"),
        ("ask", {"lease": "10m"}, 400, "lease: input should be a valid number"),
        ("ask", {"wait": 61}, 400, "wait: input should be less than or equal to 60"),
        ("trials/0/tell", {}, 400, "metrics: field required"),
        ("trials/0/tell", {"metrics": {"loss": "low"}}, 400, "metrics.loss: "),
        ("trials/0/tell", {"metrics": {"loss": True}}, 400, "metrics.loss: "),
        ("trials/0/tell", {"metrics": {"loss": 1.0}, "attempt": 0}, 400, "attempt: "),
        ("trials/0/tell", {"metrics": {str(i): 1.0 for i in range(2001)}}, 400, "at most 2000"),
        ("trials/0/tell", {"metrics": {"other": 1.0}}, 400, "loss"),
        ("trials/0/tell", {"metrics": {"loss": 1.0}, "attempt": None}, 400, "attempt: "),
        ("trials/0/tell", {"metrics": {"loss": 1.0}, "agent": "bob"}, 409, "held by agent 'ann'"),
        ("trials/0/tell", {"metrics": {"peak_memory_bytes": 1e19}}, 400, "a number from 0 to"),
        ("trials/0/fail", {"failure": "bored"}, 400, "failure: "),
        ("trials/0/report-step", {"step": 1.5, "metrics": {}}, 400, "step: "),
        ("trials/7/tell", {"metrics": {"loss": 1.0}}, 400, "there is no trial 7"),
        ("trials/0/tell", {"metrics": {"loss": 1.0}, "attempt": 2}, 409, "attempt"),
    ],
)
def test_what_an_agent_may_not_send_is_said(
    agent: Any, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    agent("ask", agent="ann")
    found = agent(path, status, **body)
    assert message in found["error"]
    valid("Error", found)
    assert agent("trials/0/tell", metrics=1.0)["state"] == "completed", "it goes on"


def test_a_lease_that_is_over_is_said_and_the_trial_given_again(agent: Any) -> None:
    agent("ask", agent="ann", lease=0.2)
    time.sleep(0.4)
    over = agent("trials/0/tell", 409, metrics={"loss": 1.0}, attempt=1)
    assert "the lease of attempt 1 of trial 0 is over" in over["error"]
    again = agent("ask", agent="bob")
    assert (again["trial"], again["attempt"], again["resumed"]) == (0, 2, True)


def test_agents_work_beside_a_controller(tmp_path: Path) -> None:
    with running(tmp_path) as (_, process), serving(str(tmp_path)) as client:
        agent = asking(client)

        def work(name: int) -> int:
            asked = agent("ask", agent=f"agent-{name}", lease=60.0)
            number: int = asked["trial"]
            agent(f"trials/{number}/report-step", step=1, metrics={"loss": 1.0})
            told = agent(f"trials/{number}/tell", metrics={"loss": 0.5}, attempt=1)
            assert told["state"] == "completed"
            return number

        with ThreadPoolExecutor(4) as threads:
            numbers = list(threads.map(work, range(8)))
        assert len(set(numbers)) == 8
        assert client.post("test/stop", {"by": "ann"})[0] == 200
        process.join()
    Ledger.open(tmp_path).check()


def test_an_agent_is_asked_to_stop_by_an_operator(agent: Any) -> None:
    agent("ask")
    status, found = agent.client.post("test/trials/0/stop", {"by": "ann"})
    assert (status, found["done"]) == (200, "trial 0 stops at its next report")
    step = agent("trials/0/report-step", step=1, metrics={"loss": 1.0})
    assert (step["stop"], step["reason"]) == (True, "stopped by ann")
    assert agent("trials/0/tell", metrics={})["state"] == "stopped"
    events = agent.client.get("/api/sweeps/test/trials/0")["events"]
    assert "ann: stop" in [one["words"] for one in events]


# ------------------------------------------------------------------ the document


def document(client: Client) -> Any:
    """The OpenAPI document, which needs no token."""
    return json.loads(client.ask("/openapi.json", role=None)[1])


def valid(schema: str, data: Any) -> None:
    """Check data by a schema of the document."""
    from automl.studio.openapi import document as made

    schemas = {"$ref": f"#/components/schemas/{schema}", **made()}
    Draft202012Validator(schemas).validate(data)


def test_the_document_is_valid_and_has_every_verb(client: Client) -> None:
    found = document(client)
    validate(found)
    assert found["openapi"] == "3.1.0"
    posts = {path for path, methods in found["paths"].items() if "post" in methods}
    assert posts == {operation.route for _, operation in OPERATIONS.values()}
    for name, (action, operation) in OPERATIONS.items():
        described = found["paths"][operation.route]["post"]
        assert described["security"] == [{action.role: []}]
        assert described["operationId"] == name


def test_what_the_document_allows_is_accepted_and_nothing_else(client: Client) -> None:
    for body in ({"star": True}, {"add_tags": ["a"]}, {}, {"note": None}):
        valid("MarkSweepBody", body)
        assert client.post("toy/mark", body)[0] == 200
    for body in ({"star": "yes"}, {"tags": ["a"]}, {"add_tags": ["a b"]}):
        with pytest.raises(Exception, match="Failed validating"):
            valid("MarkSweepBody", body)
        assert client.post("toy/mark", body)[0] == 400


def test_every_path_of_the_document_answers(client: Client) -> None:
    for path, methods in document(client)["paths"].items():
        address = path.replace("{sweep}", "toy").replace("{trial}", "1")
        if "get" in methods:
            assert client.ask(address)[0] == 200
        else:
            assert client.ask(address)[0] == 405


def test_an_agent_needs_no_library(agent: Any) -> None:
    server = agent.client.server

    def post(path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{server.origin}/api/sweeps/test/{path}",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {server.tokens.secrets[Role.AGENT]}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    while (asked := post("ask"))["trial"] is not None:
        metrics = {"loss": asked["params"]["lr"]}
        post(f"trials/{asked['trial']}/tell", metrics=metrics, attempt=asked["attempt"])
    assert agent.client.get("/api/sweeps/test")["state"] == "finished"


def test_the_agent_of_the_documentation_runs(tmp_path: Path) -> None:
    for program in ("bash", "curl", "jq"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    ledger = Ledger.open(tmp_path, create=True)
    space = Space(Float("x", 0.0, 1.0))
    ledger.create_sweep(make_spec("mine", space=space, trials=2, suggester="sobol"))
    ledger.close()
    with serving(str(tmp_path)) as client:
        server = client.server
        variables = {"STUDIO": server.origin, "TOKEN": server.tokens.secrets[Role.AGENT]}
        code = blocks(ROOT / "docs" / "guides" / "agents.md", "bash")[1]
        env = {**os.environ, **variables}
        subprocess.run(["bash", "-c", code], env=env, timeout=60, check=False)
        assert client.get("/api/sweeps/mine")["states"] == {"completed": 2}
