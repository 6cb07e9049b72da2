"""How often ranks agree on what to do next."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch.distributed as dist

from workers.protocol import StopRequest
from workers.training import control
from workers.training.control import Control, Orders


class Ranks:
    """Rank 0 of two, on a clock of its own; the other rank proposes nothing."""

    def __init__(self, monkeypatch, seconds):
        self.now = 0.0
        self.seconds = seconds  # of an update
        self.met: list[float] = []
        monkeypatch.setattr(control, "side_group", lambda: "gloo")
        monkeypatch.setattr(control.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: None)
        self.control = Control(SimpleNamespace(world_size=2, rank=0))  # type: ignore[arg-type]

    def train(self, updates, known=lambda update: False, stop=None):
        for update in range(updates):
            if self.control.due(known(update)):
                self.met.append(self.now)
                orders = self.control.agree(Orders(stop=stop), [1.5])
                assert orders.losses == (1.5,)
                if orders.acts:
                    return update
            self.now += self.seconds
        return updates


@pytest.mark.parametrize("seconds", [0.0005, 0.01, 0.1, 5.0])
def test_ranks_meet_every_few_updates_with_a_bounded_delay(monkeypatch, seconds):
    ranks = Ranks(monkeypatch, seconds)
    ranks.train(400)
    gaps = [after - before for before, after in zip(ranks.met[:-1], ranks.met[1:], strict=True)]
    assert max(gaps) <= max(0.2, seconds) + 1e-9
    assert len(ranks.met) <= 400 * max(seconds / 0.1, 0.025) + 5


def test_ranks_meet_at_every_update_of_which_all_know(monkeypatch):
    ranks = Ranks(monkeypatch, 0.001)
    ranks.train(100, known=lambda update: update % 10 == 7)
    assert {round(now * 1000) for now in ranks.met} >= set(range(7, 100, 10))


def test_a_request_takes_effect_within_the_delay(monkeypatch):
    ranks = Ranks(monkeypatch, 0.01)
    ranks.train(100)
    assert ranks.train(100, stop=StopRequest.STOP) <= 20
    ranks.control.meet_next()
    assert ranks.control.due(False)


def test_losses_of_several_ranks_are_those_of_one(runner):
    settings = {"optimizer": "sgd", "max_updates": 9, "evaluate_updates": 4, "rows": 7}
    runner(**settings)
    alone = runner.losses()
    runner(**settings, parallelism="ddp", ranks=2)
    assert runner.losses() == pytest.approx(alone, rel=1e-5)
    assert list(alone) == [4, 8, 9]
