"""People act over HTTP on a sweep that a process of its own runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from processes import of, running, wait_until
from studio_stores import Client, serving

from automl.core import Budget, TrialState


def test_a_running_sweep_is_steered(tmp_path: Path) -> None:
    """Each action is taken up by the controller, and is in the ledger with who did it."""
    with running(tmp_path, resumable=True) as (ledger, process), serving(str(tmp_path)) as client:

        def act(verb: str, **body: Any) -> Any:
            status, found = client.post(f"test/{verb}", {"by": "ann", **body})
            assert status == 200, found
            return found

        assert act("pause", trial=0) == {"done": "trial 0 pauses at its next report"}
        wait_until(lambda: of(ledger, 0, TrialState.PAUSED))
        wait_until(lambda: of(ledger, 1, TrialState.RUNNING))
        limits = {"space.optimizer": ["sgd"], "space.lr": [0.001, 0.01], "budget.trials": 7}
        assert act("set", changes=limits)["done"] == (
            "the budget is now: trials 7; "
            "from the next suggestion on: optimizer: sgd; lr: 0.001 to 0.01"
        )
        found = act("enqueue", params={"lr": 0.005, "optimizer": "sgd"})
        assert (found["trial"], found["params"]) == (None, {"lr": 0.005, "optimizer": "sgd"})
        act("stop", trial=1)
        wait_until(lambda: of(ledger, 2, TrialState.RUNNING))
        assert ledger.trials("test")[2].params == {"lr": 0.005, "optimizer": "sgd"}
        act("stop", trial=2)
        wait_until(lambda: of(ledger, 3, TrialState.RUNNING))
        assert ledger.trials("test")[3].params["optimizer"] == "sgd"
        act("enqueue", trial=2)
        page = client.get("/api/sweeps/test")
        assert page["limits"] == {"optimizer": "sgd", "lr": "0.001 to 0.01"}
        act("stop")
        process.join()
        assert ledger.snapshot("test").state == "finished"
        assert {one.by for one in ledger.commands("test")} == {"ann"}
        assert ledger.spec("test").budget == Budget(trials=7)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("toy/stop", b"{", 400, "the body is not JSON: "),
        ("toy/stop", b"[" * 100_000, 400, "the body is not JSON: "),
        ("toy/stop", b"[]", 400, "the body is an object with trial, by"),
        ("toy/stop", {"who": "ann"}, 400, "the body is an object with trial, by"),
        ("toy/stop", b" " * (1 << 21), 400, "a body has at most 1048576 bytes"),
        ("toy/stop", {"trial": 99}, 400, "there is no trial 99: there are 8"),
        ("toy/stop", {"trial": "0"}, 400, "trial must be a whole number"),
        ("toy/stop", {"trial": 0}, 409, "trial 0 is completed already"),
        ("toy/pause", {}, 400, "the body lacks trial"),
        ("toy/pause", {"trial": 0}, 409, "only a running one can pause"),
        ("toy/set", {"changes": {"budget.trials": 0}}, 400, "budget.trials must be"),
        ("toy/set", {"changes": [1]}, 400, "changes must be a mapping"),
        ("toy/enqueue", {}, 400, "give values of parameters, or the number of a trial"),
        ("toy/enqueue", {"params": {"nope": 1}}, 400, "the sweep does not tune 'nope'"),
        ("nope/stop", {}, 400, "no sweep named 'nope'"),
        ("toy/mark", {}, 404, "there is nothing at"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_error(
    client: Client, path: str, body: Any, status: int, message: str
) -> None:
    found, answer = client.post(path, body)
    assert message in answer["error"], answer
    assert (found, list(answer)) == (status, ["error"])
    assert client.ask(f"/api/sweeps/{path}")[0] in (404, 405)


def test_a_finished_sweep_gets_a_trial_that_waits(client: Client) -> None:
    status, found = client.post("toy/enqueue", {"params": {"lr": 0.01}})
    assert (status, found["trial"], found["params"]["lr"]) == (200, 8, 0.01)
    trial = client.get("/api/sweeps/toy/trials/8")
    assert (trial["state"], trial["source"]) == ("waiting", "enqueued")
