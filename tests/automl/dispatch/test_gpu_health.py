"""A GPU that fails: other trials are not blamed, and a slot is given up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fake_gpu
import pytest
from driver import Driver
from gpu_trials import behave

import automl
from automl.core.resources import Resources
from automl.dispatch.gangs import GangDispatcher
from automl.dispatch.inline import InlineDispatcher
from automl.dispatch.local import LocalDispatcher
from automl.errors import AutomlError
from search_spaces import Choice, Float, Space
from workers.protocol import Ending

pytestmark = pytest.mark.timeout(120)
ASSERT = "AcceleratorError: CUDA error: device-side assert triggered"


class GpuDriver(Driver):
    """Submits attempts that have a GPU."""

    def begin(self, number, attempt, do, ranks=1, timeout=None, **params):
        submit = self.dispatcher.submit
        self.dispatcher.submit = lambda assignment: submit(replace(assignment, gpus=1.0))
        super().begin(number, attempt, do, ranks, timeout, **params)
        self.dispatcher.submit = submit

    def seen(self, number: int) -> list[str]:
        return (self.folder / str(number) / "seen").read_text().split()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")


@pytest.fixture
def driver(two_gpus: None, tmp_path: Path) -> Iterator[GpuDriver]:
    dispatcher = LocalDispatcher("driver", 1, Resources(gpus=1.0), objective=behave)
    yield GpuDriver(dispatcher, tmp_path, 0)
    dispatcher.close()


def test_a_poisoned_context_fails_no_later_trial(driver: GpuDriver) -> None:
    poisoned = driver.finish(driver.submit("poison"))
    assert (poisoned.failure, poisoned.message) == ("crashed", ASSERT)
    late = driver.finish(driver.submit("late"))  # the trial was over when its kernel failed
    assert (late.ending, late.metrics) == (Ending.COMPLETED, {"loss": 1.0})
    for _ in range(2):
        good = driver.finish(driver.submit("work"))
        assert (good.ending, good.metrics) == (Ending.COMPLETED, {"loss": 1.0})
    pids, compilers = zip(*map(driver.seen, range(4)), strict=True)
    assert len(set(pids)) == 4
    assert set(compilers) == {"1"}  # as many as the slot has cores


def test_a_slot_whose_gpu_is_broken_is_given_up_and_the_sweep_goes_on(
    two_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fake_gpu.BROKEN, "GPU-b")
    result = automl.sweep(
        behave,
        Space(Choice("do", ["work", "rest"]), Float("x", 0, 1)),
        "minimize loss",
        trials=8,
        workers=2,
        suggester="random",
        dispatcher="local",
        resources={"gpus": 1},
        store=tmp_path,
        name="broken",
    )
    assert [trial.state for trial in result.trials] == ["completed"] * 8


class TwoSlots(GangDispatcher):
    """Two slots without workers."""

    slots = range(2)
    submit = close = _receive = _release = lambda *_: None


def test_a_slot_is_given_up_after_three_failures_in_a_row() -> None:
    two = TwoSlots()
    assert not two.attempt_ended(0, "broken")
    assert not two.attempt_ended(0, "broken")
    assert two.attempt_ended(0, "broken")
    assert two.num_slots == 1
    assert two.trouble == "worker 0 is out of use, since its GPU failed 3 times in a row: broken"
    assert not two.attempt_ended(1, "broken")
    assert not two.attempt_ended(1, "broken")
    with pytest.raises(AutomlError, match="no GPU of the sweep can be used"):
        two.attempt_ended(1, "broken")


def test_inline_the_sweep_ends_since_its_process_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = fake_gpu.FakeCuda().install(monkeypatch.setattr)

    def poison(trial):
        cuda.error = "device-side assert triggered"
        raise RuntimeError("CUDA error: device-side assert triggered")

    driver = GpuDriver(InlineDispatcher(objective=poison), tmp_path, 0)
    assert driver.finish(driver.submit("work")).failure == "crashed"
    driver.submit("work")
    with pytest.raises(AutomlError, match="this process cannot use its GPU any more: Accelerator"):
        driver.rest()
    driver.dispatcher.close()
