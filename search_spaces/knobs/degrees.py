"""How many ranks share one replica of a model under the two-dimensional strategies."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option

TENSOR_DEGREE = Option(
    "tensor_degree",
    "ranks that share each product of one replica, under data_tensor",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)
PIPELINE_DEGREE = Option(
    "pipeline_degree",
    "stages of one replica, under data_pipeline",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)


class DegreesKnob(Knob):
    """`tensor_degree` of data_tensor and `pipeline_degree` of data_pipeline; they divide the ranks.

    The heads are divisible by the first, and there are as many layers as the second.
    """

    name = "degrees"
    summary = "ranks of one replica under data_tensor and data_pipeline"
    options = (TENSOR_DEGREE, PIPELINE_DEGREE)
    on_request = (TENSOR_DEGREE, PIPELINE_DEGREE)
    conditions = {
        "tensor_degree": {"parallelism": ("data_tensor",)},
        "pipeline_degree": {"parallelism": ("data_pipeline",)},
    }
    across = (
        "parallelism != 'data_tensor' or ranks % tensor_degree == 0",
        "parallelism != 'data_tensor' or num_heads % tensor_degree == 0",
        "parallelism != 'data_pipeline' or ranks % pipeline_degree == 0",
        "parallelism != 'data_pipeline' or num_layers >= pipeline_degree",
    )
