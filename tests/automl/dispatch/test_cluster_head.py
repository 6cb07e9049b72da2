"""The head of a cluster that stops answering, and comes back or not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from automl.dispatch.ray import cluster_head
from automl.errors import AutomlError


def test_a_head_that_answers_again_in_time_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(cluster_head.time, "monotonic", lambda: now[0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        watched = cluster_head.ClusterHead(f"127.0.0.1:{port}")
        assert watched.answers()
    for now[0] in (5.0, 15.0, 19.0):
        assert not watched.answers()
        watched.check()
    with socket.create_server(("127.0.0.1", port)):
        now[0] = 30.0
        watched.check()
    for now[0] in (31.0, 49.0):
        watched.check()
    now[0] = 51.0
    with pytest.raises(AutomlError, match="has not answered for 20 s"):
        watched.check()


def test_one_that_cannot_be_asked_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(cluster_head.time, "monotonic", lambda: now[0])
    watched = cluster_head.ClusterHead("")
    for now[0] in (5.0, 100.0, 100.5):
        watched.check()
        assert watched.answers()


def test_a_raylet_that_has_ended_is_noticed_before_ray_ends_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]
    monkeypatch.setattr(cluster_head.time, "monotonic", lambda: now[0])
    path = str(tmp_path / "raylet")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        watched = cluster_head.ClusterHead("", path)
        for now[0] in (5.0, 9.0):
            watched.check()
            assert watched.answers()
    for now[0] in (10.5, 12.0):
        watched.check()
        assert not watched.answers()
    now[0] = 14.0
    with pytest.raises(AutomlError, match=r"the raylet, has ended.*: resume the sweep$"):
        watched.check()


def test_nobody_waits_for_the_head_of_a_ray_that_was_started_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(cluster_head.time, "monotonic", lambda: now[0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    watched = cluster_head.ClusterHead(address, own=True)
    now[0] = 2.0
    watched.check()
    now[0] = 4.0
    with pytest.raises(AutomlError, match="has not answered for 3 s"):
        watched.check()
