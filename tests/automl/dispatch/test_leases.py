"""Cores and GPUs that are leased, by several sweeps at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from automl.dispatch.leases import VARIABLE, LeaseFolder, MachineLeases
from automl.errors import StoreError
from tests.automl.dispatch.leaseholder import HOLD


@pytest.fixture
def folder(tmp_path: Path) -> LeaseFolder:
    return LeaseFolder(tmp_path / "leases")


@pytest.fixture
def make(folder: LeaseFolder) -> Iterator[Any]:
    made: list[MachineLeases] = []

    def one(sweep: str, cpus: int = 1, num_slots: int = 4, num_cores: int = 4) -> MachineLeases:
        made.append(MachineLeases(sweep, cpus, num_slots, folder=folder, num_cores=num_cores))
        return made[-1]

    yield one
    for leases in made:
        leases.close()


def test_a_sweep_alone_has_the_machine(make: Any) -> None:
    one = make("one")
    for trial in range(4):
        assert one.room(4 - trial) == 4 - trial
        assert one.take(trial, 1)
    assert one.waits_for == ""


def test_two_sweeps_share_the_cores_trial_by_trial_and_fairly(make: Any) -> None:
    one, two = make("one"), make("two")
    for trial in range(4):
        assert one.take(trial, 1)
    assert two.room(4) == 4, "a sweep may always run one trial"
    assert two.take(0, 1)
    assert two.room(3) == 0
    assert two.waits_for == f"waits for 3 cores held by sweep 'one', process {os.getpid()}"
    assert not two.take(1, 1)
    one.give_back(0)  # four trials run on four cores
    assert one.room(1) == 0, "it gives way to the sweep that waits and has fewer cores"
    assert two.room(3) == 0
    one.give_back(1)
    assert one.room(2) == 0
    assert two.room(3) == 1
    assert two.take(1, 1)
    assert one.room(2) == 0
    assert two.room(2) == 0, "two and two"
    one.give_back(2)
    assert one.room(3) == 1, "as poor as the other, it goes on"


def test_a_sweep_that_needs_no_more_does_not_hold_others_up(make: Any) -> None:
    one, two = make("one"), make("two")
    assert one.take(0, 1)
    assert one.take(1, 1)
    assert two.take(0, 1)
    assert two.room(3, claim=False) == 1
    assert two.waits_for == ""
    assert one.room(2) == 1


def test_a_waiting_sweep_that_does_not_come_back_is_passed_over(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = make("one"), make("two")
    for trial in range(4):
        assert one.take(trial, 1)
    assert two.take(0, 1)
    assert two.room(3) == 0
    one.give_back(0)
    one.give_back(1)
    assert one.room(1) == 0
    monkeypatch.setattr("automl.dispatch.leases.CLAIM_SECONDS", 0.0)
    assert one.room(1) == 1


def test_slots_beyond_the_cores_need_no_lease(make: Any) -> None:
    one = make("one", num_slots=10)
    for trial in range(10):
        assert one.take(trial, 1)
    two = make("two", num_slots=1)
    assert two.take(0, 1)
    one.give_back(0)
    assert one.room(1) == 0, "its four leases of four became three, and one is the other's"
    for trial in range(1, 5):
        one.give_back(trial)
    assert one.room(5) == 4


def test_a_trial_of_several_ranks_takes_the_cores_of_all_or_none(make: Any) -> None:
    one, two = make("one"), make("two", cpus=2, num_slots=2)
    assert one.take(0, 1)
    assert two.take(0, 1)
    assert not one.take(1, 2)
    assert one.take(1, 1)
    one.give_back(0)
    one.give_back(1)
    assert one.take(2, 4), "nothing of its own runs"


def test_a_killed_sweep_holds_nothing(make: Any, folder: LeaseFolder) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    one = make("one")
    assert one.take(0, 1)
    assert one.room(3) == 0
    assert one.waits_for == f"waits for 3 cores held by sweep 'killed', process {process.pid}"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert one.room(3) == 3
    assert [holder.sweep for holder in folder.holders()] == ["one"]


def test_a_folder_that_cannot_be_used_shares_nothing_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"not a folder of yours|cannot be made"):
        LeaseFolder(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="not a folder of yours"):
        LeaseFolder(tmp_path / "link")


def test_gpus_of_a_machine_that_is_not_shared_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    alone = MachineLeases("one")
    assert "file" in alone.trouble
    visible, used = ["GPU-a", "GPU-b"], {"GPU-a": "GPU-a by process 7"}
    assert alone.take_gpus(1, visible, used) == ["GPU-b"]
    assert alone.take_gpus(2, visible, used, least=2) == visible


def test_the_folder_is_the_users_alone(folder: LeaseFolder, make: Any) -> None:
    make("one").take(0, 1)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.path.chmod(0o777)
    assert LeaseFolder(folder.path).path.stat().st_mode & 0o777 == 0o700
    (file,) = folder.path.glob("*.json")
    assert json.loads(file.read_text())["cores"] == 1


def test_a_broken_file_of_a_dead_sweep_is_removed(folder: LeaseFolder, make: Any) -> None:
    (folder.path / "1-broken.json").write_text("{")
    assert make("one").room(4) == 4
    assert not (folder.path / "1-broken.json").exists()


def test_gpus_are_exclusive_and_those_in_use_are_passed_over(make: Any) -> None:
    one, two, three = make("one"), make("two"), make("three")
    visible = ["GPU-a", "GPU-b", "GPU-c"]
    used = {"GPU-a": "GPU-a by process 7"}
    assert one.take_gpus(1, visible, used) == ["GPU-b"]
    assert two.take_gpus(3, visible, used, least=3) == [], "all that it needs or none"
    who = f"sweep 'one', process {os.getpid()}, and GPU-a by process 7"
    assert two.waits_for == f"waits for 2 GPUs held by {who}"
    assert three.take_gpus(3, visible, used) == ["GPU-c"]
    with closing(one), closing(three):
        pass
    assert two.take_gpus(3, visible, {}, least=3) == visible
    assert two.waits_for == ""
