"""Data x tensor parallelism: replicas of a model, each of which is tensor-parallel."""

from search_spaces.knobs.parallelism import StrategyNeeds
from search_spaces.knobs.table import TENSOR_DEGREE
from workers.parallel.strategies.tensor import TensorParallel


class DataTensor(TensorParallel):
    """`tensor_degree` ranks share each product; the batch is shared out among the replicas."""

    needs = StrategyNeeds(
        "replicas of a tensor-parallel model, the batch shared out among them",
        min_ranks=4,
        constraints=("ranks % 2 == 0", "num_heads % 2 == 0"),
        plan=("tensor",),
    )
    degree = TENSOR_DEGREE
