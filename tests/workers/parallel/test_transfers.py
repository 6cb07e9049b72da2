"""Gradients travel in few calls, and checkpoints part by part."""

from __future__ import annotations

import json

from counting import Counting
from toy import Toy

from workers.context import Context
from workers.parallel.transfers import parts_of
from workers.protocol import Ending


class Counted(Toy):
    """Counts the all-reduces of an update, and the largest part that rank 0 collects."""

    def run(self, context: Context):
        self.counting, self.calls = Counting(), []
        with self.counting:
            metrics = super().run(context)
        (context.folder / f"calls-{context.rank}").write_text(json.dumps(self.calls))
        return metrics

    def weight(self, batch):
        self.calls.append(self.counting.calls["allreduce_"])
        return super().weight(batch)

    def canonical(self, tensors):
        self.largest = max(getattr(self, "largest", 0), sum(t.nbytes for t in tensors.values()))
        (self.folder / "largest").write_text(str(self.largest))
        return super().canonical(tensors)


def counted(context: Context):
    workload = Counted(context.params, {}, {}, seed=context.seed)
    workload.folder = context.folder
    return workload.run(context)


def test_gradients_are_summed_in_few_calls(runner):
    runner.objective = counted
    outcome = runner(parallelism="data_tensor", ranks=4, max_updates=3)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    first, second, *_ = json.loads((runner.folder / "calls-0").read_text())
    assert second - first <= 4, "of gradients, their norm, and the agreement of ranks"


def test_rank_0_never_holds_the_whole_model_for_a_checkpoint(runner):
    runner.objective = counted
    sizes = {"num_layers": 4, "width": 64, "vocabulary": 20}
    outcome = runner(**sizes, parallelism="fsdp", ranks=2, max_updates=1)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    model = Toy(sizes, {}, {}).build_model()
    layer = sum(parameter.nbytes for parameter in model.layers[0].parameters())
    assert int((runner.folder / "largest").read_text()) == layer


def test_every_name_is_in_one_part():
    model = Toy({"num_layers": 12}, {}, {}).build_model()
    parts = parts_of([f"layers.{index}" for index in range(12)])
    assert len(parts) == 13
    for name, _ in model.named_parameters():
        assert sum(part(name) for part in parts) == 1
    assert parts[1]("layers.1.inner.weight")
    assert not parts[1]("layers.11.inner.weight")
