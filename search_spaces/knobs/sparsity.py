"""Whether gradients of embeddings hold only the rows that were looked up."""

from .base import Knob
from .option import Option

SPARSE_GRADIENTS = Option(
    "sparse_gradients",
    "adam updates only those rows of embeddings that the batch looks up",
    False,
    (False, True),
)


class SparsityKnob(Knob):
    """Sparse gradients of the embeddings that the plan of a workload names, and SparseAdam.

    An update costs time and memory by the rows of the batch, not by those of the table. Moments of
    other rows stay as they are, so the result is not that of Adam, and these rows get no weight
    decay.
    """

    name = "sparsity"
    summary = "gradients of the rows of embeddings that were looked up"
    options = (SPARSE_GRADIENTS,)
    across = (
        "not sparse_gradients or parallelism == 'single'",  # NCCL sums no sparse gradients
        "not sparse_gradients or optimizer in ('adamw', 'adam')",
        "not sparse_gradients or not optimizer_sharding",
    )
