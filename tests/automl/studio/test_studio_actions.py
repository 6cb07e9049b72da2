"""People act over HTTP on a sweep that a process of its own runs."""

from __future__ import annotations

from typing import Any

import pytest
from studio_stores import Client


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
        ("toy/enqueue", {"params": {"nope": 1}}, 400, "unknown parameter 'nope'"),
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
