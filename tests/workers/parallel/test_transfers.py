"""Gradients travel in few calls."""

from __future__ import annotations

import json

from counting import Counting
from toy import Toy

from workers.context import Context
from workers.protocol import Ending


class Counted(Toy):
    """Counts the all-reduces of an update."""

    def run(self, context: Context):
        self.counting, self.calls = Counting(), []
        with self.counting:
            metrics = super().run(context)
        (context.folder / f"calls-{context.rank}").write_text(json.dumps(self.calls))
        return metrics

    def weight(self, batch):
        self.calls.append(self.counting.calls["allreduce_"])
        return super().weight(batch)


def counted(context: Context):
    return Counted(context.params, {}, {}, seed=context.seed).run(context)


def test_gradients_are_summed_in_few_calls(runner):
    runner.objective = counted
    outcome = runner(parallelism="data_tensor", ranks=4, max_updates=3)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    first, second, *_ = json.loads((runner.folder / "calls-0").read_text())
    assert second - first <= 4, "of gradients, their norm, and the agreement of ranks"
