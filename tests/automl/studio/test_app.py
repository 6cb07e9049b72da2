"""The API: the JSON of the command line, what changed, logs and files."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from click.testing import CliRunner
from studio_stores import Client, begin_trial, controller, run_trial

from automl.cli import cli
from workers.protocol import Report


def printed(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def events(client: Client, query: str = "") -> tuple[http.client.HTTPConnection, Any]:
    """An open stream of events; its first event is read, into `answer.hello`."""
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port, timeout=30)
    headers = {"Authorization": f"Bearer {client.server.token}"}
    connection.request("GET", f"/api/events?{query}", headers=headers)
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    answer.hello = json.loads(answer.readline()[6:])  # type: ignore[attr-defined]
    assert answer.hello["hello"]  # type: ignore[attr-defined]
    answer.readline()
    return connection, answer


def next_change(answer: Any, sweep: str = "toy") -> dict[str, Any]:
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            message: dict[str, Any] = json.loads(line[6:])
            if sweep in message["changed"]:
                return message


def test_lists_are_those_of_the_command_line(store: str, client: Client) -> None:
    assert client.get("/api/sweeps") == printed("list", "--json", "--store", store)
    assert client.get("/api/sweeps/toy/trials") == printed(
        "trials", "toy", "--json", "--store", store
    )


def test_the_page_of_a_sweep_has_its_answer(client: Client) -> None:
    page = client.get("/api/sweeps/toy")
    assert page["headline"].startswith("Best so far: loss ")
    assert page["states"] == {"completed": 6, "stopped": 1, "failed": 1}
    assert [one["name"] for one in page["space"]][:2] == ["lr", "batch_size"]
    assert page["share"] == 1.0
    row = client.get("/api/overview")["sweeps"][0]
    assert (row["name"], row["state"], row["num_trials"]) == ("toy", "finished", 8)


def test_the_page_of_a_trial_has_its_curves_and_attempts(client: Client) -> None:
    trial = client.get("/api/sweeps/toy/trials/1")
    assert trial["curves"]["loss"]["steps"] == [10, 20, 30, 40, 50, 60]
    assert trial["attempts"] == 2
    assert any("paused" in one["words"] for one in trial["events"])
    assert trial["memory_by_module_bytes"] == {"head": trial["peak_memory_bytes"]}
    curves = client.get("/api/sweeps/toy/curves?trials=0,1,99,x&metric=loss")
    assert {key: list(one) for key, one in curves.items()} == {"0": ["loss"], "1": ["loss"]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/sweeps/nope", 404),
        ("/api/sweeps/toy/trials/99", 404),
        ("/api/sweeps/toy/trials/1/log", 404),
        ("/api/sweeps/toy/trials/1/log?attempt=x", 404),
        ("/api/sweeps/toy/table?since=1e9999", 404),
        ("/api/sweeps/toy/trials/1/files/../../../ledger.sqlite3", 404),
        ("/api/sweeps/toy/trials/1/files/%2e%2e/%2e%2e/%2e%2e/%2e%2e/ledger.sqlite3", 404),
        ("/api/sweeps/toy/trials/1/files/logs", 404),
        ("/api/nothing", 404),
        ("/nothing", 404),
    ],
)
def test_what_is_not_there_is_said(client: Client, path: str, status: int) -> None:
    found, body, _ = client.ask(path)
    assert found == status, body
    assert b"Traceback" not in body
    if path.startswith("/api/"):
        assert json.loads(body)["error"]


def test_only_changed_trials_are_sent_again(store: str, client: Client) -> None:
    first = client.get("/api/sweeps/toy/table")
    assert (first["whole"], len(first["rows"])) == (True, 8)
    with controller(store) as recorder:
        number = run_trial(recorder, -5.0)
        address = f"/api/sweeps/toy/table?since={first['version']}&epoch={first['epoch']}"
        again = client.get(address)
        assert (again["whole"], [row[0] for row in again["rows"]]) == (False, [number])
        assert client.get("/api/sweeps/toy")["best"]["number"] == number
    other = address.replace(str(first["epoch"]), str(first["epoch"] + 1))
    assert client.get(other)["whole"] is True


def test_a_commit_is_told_to_everybody_who_looks(store: str, client: Client) -> None:
    streams = [events(client) for _ in range(3)]

    def wait_for(key: str, value: Any) -> None:
        """Until the sweep has a value, each change that leads to it is told to everybody."""
        while client.get("/api/sweeps/toy")[key] != value:
            for _, answer in streams:
                next_change(answer)

    with controller(store) as recorder:
        number = begin_trial(recorder, loss=3.0)
        curve = {"number": number, "attempt": 1, "step": 1, "started": 100.0, "values": [3.0]}
        wait_for("running", [curve])
        recorder.apply(Report(number, 1, 1, 2, {"loss": 2.0}, 2.0))
        recorder.commit(102.0)
        wait_for("running", [curve | {"step": 2, "values": [3.0, 2.0]}])
    wait_for("state", "interrupted")
    lines = client.get("/api/sweeps/toy")["lines_to_type"]
    assert lines["resume"] == f"automl resume toy --store {store} --objective FILE:NAME"
    assert f"--store {store} space.lr.high=VALUE --objective" in lines["widen"]
    for connection, _ in streams:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
def test_other_sites_and_who_has_no_token_get_nothing(
    client: Client, headers: dict[str, str], status: int
) -> None:
    found, body, sent = client.ask("/api/sweeps", **headers)
    assert (found, list(json.loads(body))) == (status, ["error"])
    assert "default-src 'none'" in sent["content-security-policy"]
    assert client.post("toy/stop", **headers)[0] == status
