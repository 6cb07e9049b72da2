"""A function that cannot read its own checkpoint goes on from an older one, or begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import TrialFailure
from workers.context import Context
from workers.protocol import Assignment, Outcome, StopRequest
from workers.run import run


class Paused:
    """Runs attempts at one trial, each until it has reported the step `until`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempts = 0
        self.steps: list[int] = []

    def __call__(self, until: int = 9) -> Outcome:
        self.attempts += 1
        self.steps = []
        assignment = Assignment(
            "s", 0, self.attempts, {}, None, str(self.folder), resume=self.attempts > 1
        )
        context = Context(
            assignment,
            lambda report: self.steps.append(report.step),
            lambda: StopRequest.PAUSE if until in self.steps else None,
        )
        return run(context, train)


def train(trial: Context) -> dict[str, float]:
    state = trial.checkpoint_dir / "step"
    done = int(state.read_text()) if trial.resumed else 0
    for step in range(done + 1, 6):
        state.write_text(str(step))
        if not trial.report(step, loss=1 / step):
            break
    return {"loss": 0.1}


@pytest.mark.parametrize(
    ("copies", "steps", "words"),
    [
        (True, [3, 4, 5], "went on from the checkpoint before"),
        (False, [1, 2, 3, 4, 5], "began anew"),
    ],
)
def test_a_torn_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, steps: list[int], words: str
) -> None:
    if not copies:
        monkeypatch.setattr("workers.artifacts.fallback.MAX_BYTES", 0)
    paused = Paused(tmp_path)
    assert paused(until=2).ending == "paused"
    (tmp_path / "checkpoints" / "step").write_text("")
    done = paused()
    assert (done.ending, paused.steps) == ("completed", steps)
    assert done.message.startswith(f"{words}, because its checkpoint fails: ValueError: invalid")


def test_a_failure_that_the_configuration_causes_is_not_tried_again(tmp_path: Path) -> None:
    calls = []

    def refuse(trial: Context) -> None:
        calls.append(trial.resumed)
        raise TrialFailure("out_of_memory", "too large")

    paused = Paused(tmp_path)
    assert paused(until=2).ending == "paused"
    context = Context(Assignment("s", 0, 2, {}, None, str(tmp_path), resume=True))
    assert run(context, refuse).failure == "out_of_memory"
    assert calls == [True]
