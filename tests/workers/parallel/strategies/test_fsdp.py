"""What a rank of `fsdp` holds and sends."""

from __future__ import annotations

import json

from counting import Counting
from toy import Toy

from workers.context import Context
from workers.protocol import Ending

SIZES = {"parallelism": "fsdp", "num_layers": 4, "width": 64, "num_heads": 4}


class Wide(Toy):
    """Counts the operations of the first update's forward pass."""

    def loss(self, model, batch):
        if hasattr(self, "counting"):
            return super().loss(model, batch)
        self.counting = Counting()
        with self.counting:
            return super().loss(model, batch)


def wide(context: Context):
    workload = Wide(context.params, {}, {}, seed=context.seed)
    metrics = workload.run(context)
    shapes = [list(shape) for shape in workload.counting.narrowed]
    formats = [str(dtype) for dtype in workload.counting.gathered]
    (context.folder / f"counted-{context.rank}").write_text(json.dumps([shapes, formats]))
    return metrics


def test_half_precision_sends_half_and_keeps_no_second_copy_of_weights(runner):
    runner.objective = wide
    outcome = runner(**SIZES, precision="bf16", ranks=2, max_updates=1)
    assert outcome.ending is Ending.COMPLETED, outcome.message
    shapes, formats = json.loads((runner.folder / "counted-1").read_text())
    assert formats == ["torch.bfloat16"]
    weights = {tuple(p.shape) for p in Toy(SIZES, {}, {}).build_model().parameters() if p.ndim > 1}
    assert not weights & {tuple(shape) for shape in shapes}
