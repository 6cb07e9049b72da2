"""The API: the JSON of the command line, what changed, logs and files."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from studio_stores import Client, begin_trial, controller, run_trial

from automl.cli import cli
from workers.protocol import Report


def printed(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def events(client: Client) -> Any:
    """An open stream of events, whose first event is read."""
    headers = {"Authorization": f"Bearer {client.server.token}"}
    answer = urlopen(Request(f"{client.server.origin}/api/events", headers=headers), timeout=30)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert json.loads(answer.readline()[6:])["hello"]
    answer.readline()
    return answer


def await_change(answer: Any) -> None:
    """Read a stream until it tells of a change of the sweep."""
    changed: list[str] = []
    while "toy" not in changed:
        line = answer.readline()
        assert line, "the stream ended"
        changed = json.loads(line[6:])["changed"] if line.startswith(b"data: ") else []


def test_lists_are_those_of_the_command_line(quiet: Client) -> None:
    where = ("--json", "--store", str(Path(quiet.server.watcher.ledger.name).parent))
    assert quiet.get("/api/sweeps") == printed("list", *where)
    assert quiet.get("/api/sweeps/toy/trials") == printed("trials", "toy", *where)


def test_the_pages_of_a_sweep_and_of_a_trial(quiet: Client) -> None:
    page = quiet.get("/api/sweeps/toy")
    assert page["headline"].startswith("Best so far: loss ")
    assert page["states"] == {"completed": 6, "stopped": 1, "failed": 1}
    assert [one["name"] for one in page["space"]][:2] == ["lr", "batch_size"]
    assert page["share"] == 1.0
    row = quiet.get("/api/overview")["sweeps"][0]
    assert (row["name"], row["state"], row["num_trials"]) == ("toy", "finished", 8)
    trial = quiet.get("/api/sweeps/toy/trials/1")
    assert trial["curves"]["loss"]["steps"] == [10, 20, 30, 40, 50, 60]
    assert trial["attempts"] == 2
    assert any("paused" in one["words"] for one in trial["events"])
    assert trial["memory_by_module_bytes"] == {"head": trial["peak_memory_bytes"]}
    curves = quiet.get("/api/sweeps/toy/curves?trials=0,1,99,x&metric=loss")
    assert {key: list(one) for key, one in curves.items()} == {"0": ["loss"], "1": ["loss"]}


@pytest.mark.parametrize(
    "path",
    [
        "/api/sweeps/nope",
        "/api/sweeps/toy/trials/99",
        "/api/sweeps/toy/trials/1/log",
        "/api/sweeps/toy/trials/1/log?attempt=x",
        "/api/sweeps/toy/table?since=1e9999",
        "/api/sweeps/toy/trials/1/files/../../../ledger.sqlite3",
        "/api/sweeps/toy/trials/1/files/%2e%2e/%2e%2e/%2e%2e/%2e%2e/ledger.sqlite3",
        "/api/sweeps/toy/trials/1/files/logs",
        "/api/nothing",
        "/nothing",
    ],
)
def test_what_is_not_there_is_said(quiet: Client, path: str) -> None:
    found, body, _ = quiet.ask(path)
    assert found == 404, body
    assert b"Traceback" not in body
    assert not path.startswith("/api/") or json.loads(body)["error"]


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
            for answer in streams:
                await_change(answer)

    with controller(store) as recorder:
        number = begin_trial(recorder, loss=3.0)
        curve = {"number": number, "attempt": 1, "step": 1, "started": 100.0, "values": [3.0]}
        wait_for("running", [curve])
        recorder.state.apply(Report(number, 1, 1, 2, {"loss": 2.0}, 2.0))
        recorder.commit(102.0)
        wait_for("running", [curve | {"step": 2, "values": [3.0, 2.0]}])
    wait_for("state", "interrupted")
    lines = client.get("/api/sweeps/toy")["lines_to_type"]
    assert lines["resume"] == f"automl resume toy --store {store} --objective FILE:NAME"
    assert f"--store {store} space.lr.high=VALUE --objective" in lines["widen"]
    for answer in streams:
        answer.close()


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
    quiet: Client, headers: dict[str, str], status: int
) -> None:
    found, body, sent = quiet.ask("/api/sweeps", **headers)
    assert (found, list(json.loads(body))) == (status, ["error"])
    assert "default-src 'none'" in sent["content-security-policy"]
    assert quiet.post("toy/stop", **headers)[0] == status


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("toy/stop", b"{", 400, "the body is not JSON: "),
        ("toy/stop", b"[" * 100_000, 400, "the body is not JSON: "),
        ("toy/stop", b"[]", 400, "the body is an object with trial, by"),
        ("toy/stop", {"who": "ann"}, 400, "the body is an object with trial, by"),
        ("toy/stop", {"trial": 99}, 400, "there is no trial 99: there are 8"),
        ("toy/stop", {"trial": "0"}, 400, "trial must be a whole number"),
        ("toy/stop", {"trial": 0}, 409, "trial 0 is completed already"),
        ("toy/pause", {}, 400, "the body is an object with trial, by, at least trial"),
        ("toy/pause", {"trial": 0}, 409, "only a running one can pause"),
        ("toy/set", {"changes": {"budget.trials": 0}}, 400, "budget.trials must be"),
        ("toy/set", {"changes": [1]}, 400, "changes must be a mapping"),
        ("toy/enqueue", {}, 400, "give values of parameters, or the number of a trial"),
        ("toy/enqueue", {"params": {"nope": 1}}, 400, "unknown parameter 'nope'"),
        ("nope/stop", {}, 400, "no sweep named 'nope'"),
        ("toy/mark", {}, 404, "there is nothing at"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_error(
    quiet: Client, path: str, body: Any, status: int, message: str
) -> None:
    found, answer = quiet.post(path, body)
    assert message in answer["error"], answer
    assert (found, list(answer)) == (status, ["error"])
    assert quiet.ask(f"/api/sweeps/{path}")[0] in (404, 405)
