"""The parameter server: which rank computes what."""

from __future__ import annotations

from toy import Toy

from workers.context import Context
from workers.protocol import Ending


class Counted(Toy):
    """Notes how many rows this rank computes in an update."""

    def loss(self, model, batch):
        (self.folder / f"rows-{self.rank}").write_text(str(len(batch["tokens"])))
        return super().loss(model, batch)


def counted(context: Context):
    workload = Counted(context.params, {}, {}, seed=context.seed)
    workload.folder, workload.rank = context.folder, context.rank
    return workload.run(context)


def test_the_rank_that_serves_trains_too(runner):
    runner(max_updates=3, evaluate_updates=1, rows=7, optimizer="sgd")
    alone = list(runner.losses().values())
    runner.folder /= "server"
    runner.objective = counted
    settings = {"parallelism": "embedding_server", "rows": 7, "optimizer": "sgd"}
    outcome = runner(**settings, ranks=3, max_updates=3, evaluate_updates=1)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    rows = [int((runner.folder / f"rows-{rank}").read_text()) for rank in range(3)]
    assert rows == [2, 2, 3]
    assert all(abs(a - b) < 1e-5 * a for a, b in zip(alone, runner.losses().values(), strict=True))
