"""People act over HTTP on a sweep that a process of its own runs; who may not, does nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from objectives import make_spec
from processes import of, running, wait_until
from report_sweeps import write_sweep
from studio_stores import Client, serving

from automl.actions import OPERATIONS
from automl.actions.action import Operation
from automl.core import Budget, Command, TrialState
from automl.ledger import Ledger
from automl.studio import actions
from automl.studio.tokens import Role
from automl.workflows import steering

DONE = "done"
BODIES: dict[str, dict[str, Any]] = {
    "report_step": {"step": 1, "metrics": {"loss": 1.0}},
    "tell": {"metrics": {"loss": 1.0}},
    "fail": {"failure": "crashed"},
    "set_budget": {"trials": 3},
    "pin": {"limits": {"optimizer": "sgd"}},
    "enqueue": {"params": {"lr": 0.01}},
    "mark_sweep": {"star": True},
    "mark_trial": {"star": True},
}


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A studio of a store in which nothing is done."""
    with serving(write_sweep(tmp_path_factory.mktemp("studio"), 8)) as client:
        yield client


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A studio of a store of which only what cannot be done is asked."""
    with serving(write_sweep(tmp_path_factory.mktemp("studio"), 8)) as client:
        yield client


def path_of(operation: Operation, sweep: str = "test", trial: int = 0) -> str:
    return f"{sweep}{operation.path}".replace("{trial}", str(trial))


def test_a_running_sweep_is_steered(tmp_path: Path) -> None:
    """Each action is taken up by the controller, and is in the ledger with who did it."""
    with running(tmp_path, resumable=True) as (ledger, process), serving(str(tmp_path)) as client:

        def act(path: str, **body: Any) -> Any:
            status, found = client.post(f"test/{path}", {"by": "ann", **body})
            assert status == 200, found
            return found

        assert act("trials/0/pause") == {DONE: "trial 0 pauses at its next report"}
        wait_until(lambda: of(ledger, 0, TrialState.PAUSED))
        wait_until(lambda: of(ledger, 1, TrialState.RUNNING))
        pinned = act("pin", limits={"optimizer": "sgd", "lr": {"low": 0.001, "high": 0.01}})
        assert pinned["limits"] == {
            "optimizer": {"choices": ["sgd"]},
            "lr": {"low": 0.001, "high": 0.01},
        }
        found = act("enqueue", params={"lr": 0.005, "optimizer": "sgd"})
        assert (found["trial"], found["params"]) == (None, {"lr": 0.005, "optimizer": "sgd"})
        assert act("trials/0/resume") == {DONE: "trial 0 goes on next"}
        assert act("trials/1/stop") == {DONE: "trial 1 stops at its next report"}
        wait_until(lambda: of(ledger, 0, TrialState.RUNNING))
        act("trials/0/stop")
        wait_until(lambda: of(ledger, 2, TrialState.RUNNING))
        assert ledger.trials("test")[2].params == {"lr": 0.005, "optimizer": "sgd"}
        assert ledger.trials("test")[2].source == "enqueued"
        act("trials/2/stop")
        wait_until(lambda: of(ledger, 3, TrialState.RUNNING))
        suggested = ledger.trials("test")[3].params
        assert suggested["optimizer"] == "sgd"
        assert 0.001 <= suggested["lr"] <= 0.01
        assert act("pin", release=["lr"])["limits"] == {"optimizer": {"choices": ["sgd"]}}
        assert act("trials/2/retry")[DONE].endswith("tries the configuration of trial 2 again")
        assert act("budget", trials=7)[DONE] == "the budget is now: trials 7"
        marks = act("trials/2/mark", star=True, add_tags=["good"], note="why?")
        assert (marks["star"], marks["tags"], marks["note"], marks["by"]) == (
            True,
            ["good"],
            "why?",
            "ann",
        )
        assert act("mark", archived=True)["archived"]
        act("stop")
        process.join()
        assert ledger.snapshot("test").state == "finished"
        commands = ledger.commands("test")
        assert [one.kind for one in commands] == [
            *("pause_trial", "limits", "enqueue", "resume_trial", "stop_trial", "stop_trial"),
            *("stop_trial", "limits", "retry_trial", "budget", "mark", "mark", "stop"),
        ]
        assert {one.by for one in commands} == {"ann"}
        assert all(time.time() - 600 < one.sent <= time.time() for one in commands)
        assert ledger.spec("test").budget == Budget(trials=7)
    Ledger.open(tmp_path).check()


def test_without_a_name_the_user_of_the_studio_acts(client: Client, store: str) -> None:
    assert client.post("toy/mark", {"star": True})[0] == 200
    ledger = Ledger.open(store, readonly=True)
    assert ledger.commands("toy")[-1].by.endswith(f"@{socket.gethostname()}")
    ledger.close()


def test_pages_learn_of_marks_and_limits(client: Client) -> None:
    before = client.get("/api/sweeps/toy/table")
    client.post("toy/mark", {"add_tags": ["night"], "note": "n", "archived": True, "by": "ann"})
    client.post("toy/trials/3/mark", {"star": True, "add_tags": ["odd"], "by": "bob"})
    client.post("toy/pin", {"limits": {"optimizer": "adam"}, "by": "ann"})
    page = client.get("/api/sweeps/toy")
    assert (page["marks"]["tags"], page["marks"]["archived"]) == (["night"], True)
    assert page["limits"] == {"optimizer": "adam"}
    assert [(one["by"], one["kind"], one["trial"]) for one in page["commands"]] == [
        ("ann", "limits", None),
        ("bob", "mark", 3),
        ("ann", "mark", None),
    ]
    address = f"/api/sweeps/toy/table?since={before['version']}&epoch={before['epoch']}"
    changed = client.get(address)
    assert changed["whole"] is False
    (row,) = changed["rows"]
    cells = dict(zip(changed["facts"], row, strict=False))
    assert (cells["number"], cells["star"], cells["tags"]) == (3, True, "odd")
    assert client.get("/api/sweeps/toy/trials/3")["marks"]["star"]
    assert client.get("/api/overview")["sweeps"][0]["line"]["marks"]["archived"]


def test_a_finished_sweep_gets_a_trial_that_waits(client: Client) -> None:
    status, found = client.post("toy/enqueue", {"params": {"lr": 0.01}})
    assert (status, found["trial"]) == (200, 8)
    assert found["params"]["lr"] == 0.01
    trial = client.get("/api/sweeps/toy/trials/8")
    assert (trial["state"], trial["source"]) == ("waiting", "enqueued")


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("role", [None, *Role])
def test_a_role_does_only_what_is_its_own(unchanged: Client, name: str, role: Role | None) -> None:
    action, operation = OPERATIONS[name]
    if role == action.role:
        pytest.skip("its own")
    status, found = unchanged.post(path_of(operation, "toy"), BODIES.get(name), role)
    assert status == (401 if role is None else 403), found
    assert unchanged.get("/api/sweeps/toy")["commands"] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_sites_and_other_methods_do_nothing(unchanged: Client, name: str) -> None:
    action, operation = OPERATIONS[name]
    role = Role(action.role)
    own = f"http://127.0.0.1:{unchanged.server.port}"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": f"{own}.evil.example"},
    ):
        assert (
            unchanged.post(path_of(operation, "toy"), BODIES.get(name), role, **headers)[0] == 403
        )
    path = f"/api/sweeps/{path_of(operation, 'toy')}"
    for method in ("GET", "PUT", "DELETE"):
        assert unchanged.ask(path, role, method)[0] == 405
    assert unchanged.get("/api/sweeps/toy")["commands"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("toy/stop", b"{", 400, "the body is not JSON: "),
        ("toy/stop", b"[" * 100_000, 400, "the body is not JSON: "),
        ("toy/stop", b"\xff\xfe", 400, "the body is not JSON: "),
        ("toy/stop", b'{"by": "\\ud800"}', 400, "not JSON"),
        ("toy/stop", b"[]", 400, "the body: input should be an object"),
        ("toy/stop", {"who": "ann"}, 400, "who: extra inputs are not permitted"),
        ("toy/stop", {"by": "x" * 201}, 400, "by: string should have at most 200 characters"),
        ("toy/stop", b" " * (1 << 21), 413, "a body has at most 1048576 bytes"),
        ("toy/budget", {}, 400, "a budget has trials, time, worker_time, target, gain"),
        ("toy/budget", {"trials": "9"}, 400, "trials: input should be a valid integer"),
        ("toy/budget", {"trials": 0}, 400, "trials: input should be greater than or equal to 1"),
        ("toy/budget", b'{"time": 1e999}', 400, "time: "),
        ("toy/pin", {}, 400, "name a parameter in limits or in release"),
        ("toy/pin", {"limits": {"nope": 1}}, 400, "the sweep does not tune 'nope'"),
        ("toy/pin", {"limits": {"optimizer": {"low": 1}}}, 400, "optimizer has choices"),
        ("toy/pin", {"limits": {"lr": {"choices": [1]}}}, 400, "lr is a number"),
        ("toy/pin", {"limits": {"lr": {"low": 1, "top": 2}}}, 400, "limits.lr.top: "),
        ("toy/pin", {"limits": {"lr": {"low": 0.01, "high": 0.001}}}, 400, "the range of a number"),
        ("toy/pin", {"limits": {"lr": 9e9}}, 400, "lr"),
        ("toy/pin", {"release": ["lr"]}, 400, "lr is not pinned or narrowed in toy"),
        ("toy/enqueue", {}, 400, "params: field required"),
        ("toy/enqueue", {"params": {"nope": 1}}, 400, "the sweep does not tune 'nope'"),
        ("toy/enqueue", {"params": {"lr": "fast"}}, 400, "lr must be a number"),
        ("toy/enqueue", {"params": {"lr": {"a": 1}}}, 400, "params.lr: "),
        ("toy/mark", {"add_tags": ["two words"]}, 400, "add_tags.0: "),
        ("toy/mark", {"note": "x" * 5000}, 400, "note: string should have at most 4096"),
        ("toy/trials/99/mark", {"star": True}, 400, "there is no trial 99: there are 8"),
        ("toy/trials/99/stop", {}, 400, "there is no trial 99: there are 8"),
        ("toy/trials/0/stop", {}, 409, "trial 0 is completed already"),
        ("toy/trials/0/pause", {}, 409, "only a running one can pause"),
        ("toy/trials/0/resume", {}, 409, "only a paused one can be resumed"),
        ("toy/trials/0/mark", {"archived": True}, 400, "archived: extra inputs"),
        ("nope/stop", {}, 404, "there is no sweep named 'nope'"),
        ("../toy/stop", {}, 404, "there is nothing at"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_error(
    refusing: Client, path: str, body: Any, status: int, message: str
) -> None:
    found, answer = refusing.post(path, body)
    assert message in answer["error"], answer
    assert found == status, answer
    assert list(answer) == ["error"]
    assert len(answer["error"]) < 2500


def test_a_body_must_be_json(client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert client.post("toy/stop", {}, Content_Type=kind)[0] == 415
    assert client.post("toy/mark", {}, Content_Type="application/json; charset=utf-8")[0] == 200


def test_a_body_that_does_not_arrive_hurts_nobody(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BODY_SECONDS", 0.5)
    token = client.server.tokens.secrets[Role.OPERATOR]
    head = (
        f"POST /api/sweeps/toy/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}"
        "\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    slow = [socket.create_connection(("127.0.0.1", client.server.port), 30) for _ in range(30)]
    for one in slow:
        one.sendall(head.encode())
    assert client.get("/api/sweeps/toy")["commands"] == []
    assert all(b" 408 " in one.recv(100) for one in slow)
    for one in slow:
        one.close()


def test_a_chunked_body_that_is_too_large_is_refused(client: Client) -> None:
    token = client.server.tokens.secrets[Role.OPERATOR]
    head = (
        f"POST /api/sweeps/toy/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}"
        "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.server.port), 30) as one:
        one.sendall(head.encode() + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 20)
        assert b" 413 " in one.recv(100)


def test_the_process_that_acts_is_started_again(client: Client) -> None:
    assert client.post("toy/mark", {"star": True})[0] == 200
    process = client.server.actions._child._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    status, answer = client.post("toy/mark", {"note": "again"})
    if status == 504:  # it was sent before the death was noticed
        assert "try again" in answer["error"]
        status, answer = client.post("toy/mark", {"note": "again"})
    assert (status, answer["star"], answer["note"]) == (200, True, "again")


def test_a_hostile_name_of_a_person_is_only_a_name(client: Client) -> None:
    name = "<img src=x onerror=alert(1)>\u202e\0"
    assert client.post("toy/mark", {"star": True, "by": name})[0] == 200
    assert client.get("/api/sweeps/toy")["commands"][0]["by"] == name


def test_many_act_at_once(tmp_path: Path) -> None:
    """Every action is done once, whoever asks beside it."""
    from concurrent.futures import ThreadPoolExecutor

    with running(tmp_path) as (ledger, _), serving(str(tmp_path)) as client:

        def tag(number: int) -> int:
            return client.post("test/trials/0/mark", {"add_tags": [f"t{number}"]})[0]

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(tag, range(40))) == {200}
        tags = steering.marks(ledger, "test")[0]["tags"]
        assert sorted(tags) == sorted(f"t{number}" for number in range(40))
        assert sum(isinstance(one, Command) for one in ledger.commands("test")) == 40


def test_a_store_that_may_only_be_read_is_said(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, create=True)
    ledger.create_sweep(make_spec())
    ledger.close()
    with serving(str(tmp_path)) as client:
        (tmp_path / "ledger.sqlite3").rename(tmp_path / "moved")
        status, answer = client.post("test/mark", {"star": True})
        assert status in (404, 503), answer
        (tmp_path / "moved").rename(tmp_path / "ledger.sqlite3")
        assert client.post("test/mark", {"star": True})[0] == 200
        assert json.dumps(answer)
