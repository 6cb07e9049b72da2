"""Sweeps on machines that share no disk: gangs across them, machines that are lost or join."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import machines
from tests.machine_sweeps import OBJECTIVE, Sweep
from tests.machines import Machines, start_head, start_node

WHY = machines.missing()
pytestmark = [
    pytest.mark.skipif("AUTOML_TEST_ALL" not in os.environ, reason="takes minutes: make test-all"),
    pytest.mark.skipif(bool(WHY), reason=WHY or "they can be made"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Machines]:
    """A head and two more machines of one CPU each; every hosts file says 127.0.1.1."""
    with machines.machines() as made:
        for name in ("alpha", "beta", "gamma"):
            machine = made.add(name)
            machine.write("work.py", OBJECTIVE)
        head = start_head(made.all[0], 1)
        start_node(made.all[1], head, 1)
        # Ray finds the kind of real GPUs by itself; trials here do not use them.
        start_node(made.all[2], head, 1, num_gpus="1", resources='{"accelerator_type:H100": 1}')
        yield made


def test_ranks_meet_across_machines_and_on_one_whatever_their_hosts_files_say(
    cluster: Machines, tmp_path: Path
) -> None:
    alpha, beta, _ = cluster.all[:3]
    pairs = Sweep(alpha, tmp_path, "pairs", alpha, ranks=2, workers=2).result()
    triples = Sweep(beta, tmp_path, "triples", alpha, ranks=3, workers=3).result()
    for trials, ranks in ((pairs, 2), (triples, 3)):
        assert [(state, attempts) for state, attempts, *_ in trials] == [("completed", 1)] * 4
        # Each step adds up what the ranks have: 1 + ... + n, then n times as much.
        expected = ranks * (ranks + 1) / 2 * ranks**2
        assert {(loss, hosts) for _, _, loss, hosts, *_ in trials} == {(expected, float(ranks))}


def test_a_sweep_knows_the_nodes_and_may_ask_for_a_kind_of_them(
    cluster: Machines, tmp_path: Path
) -> None:
    alpha, beta, _ = cluster.all[:3]
    address = f"{alpha.address}:{machines.HEAD_PORT}"
    rows = json.loads(
        beta.run("python", "-m", "automl.dispatch.ray.nodes", address).splitlines()[-1]
    )
    assert {(row["kind"], row["count"]) for row in rows} == {("", 2), ("H100", 1)}
    assert {row["hardware"]["num_cpus"] for row in rows} == {1}
    wanted = {"cpus": 1, "gpus": 1, "accelerator": "H100"}
    trials = Sweep(beta, tmp_path, "kind", alpha, workers=1, trials=3, resources=wanted).result()
    assert [(state, initial, kind) for state, _, _, _, initial, _, kind in trials] == [
        ("completed", float(ord("g")), "H100")
    ] * 3


def test_a_machine_that_is_turned_off_fails_no_trial_and_another_takes_its_place(
    cluster: Machines, tmp_path: Path
) -> None:
    alpha, _, gamma = cluster.all[:3]
    sweep = Sweep(alpha, tmp_path, "lost", alpha, workers=3, trials=9, steps=15)
    sweep.until(lambda states: states.count("running") == 3)
    gamma.kill()
    delta = cluster.add("delta")
    delta.write("work.py", OBJECTIVE)
    start_node(delta, f"{alpha.address}:{machines.HEAD_PORT}", 1)
    trials = sweep.result()
    assert {state for state, *_ in trials} == {"completed"}, trials
    assert sum(attempts for _, attempts, *_ in trials) == 10, "only the lost one was tried again"
