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
SHARD_DEGREE = Option(
    "shard_degree",
    "ranks that share the parameters of one replica, under hsdp",
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
    """Degrees of data_tensor, hsdp and data_pipeline; each divides the number of ranks.

    The heads are divisible by `tensor_degree`, and there are `pipeline_degree` layers or more.
    """

    name = "degrees"
    summary = "ranks of one replica under data_tensor, hsdp and data_pipeline"
    options = (TENSOR_DEGREE, SHARD_DEGREE, PIPELINE_DEGREE)
    on_request = options
    conditions = {
        "tensor_degree": {"parallelism": ("data_tensor",)},
        "shard_degree": {"parallelism": ("hsdp",)},
        "pipeline_degree": {"parallelism": ("data_pipeline",)},
    }
    across = (
        "parallelism != 'data_tensor' or ranks % tensor_degree == 0",
        "parallelism != 'data_tensor' or num_heads % tensor_degree == 0",
        "parallelism != 'hsdp' or ranks % shard_degree == 0",
        "parallelism != 'data_pipeline' or ranks % pipeline_degree == 0",
        "parallelism != 'data_pipeline' or num_layers >= pipeline_degree",
        "parallelism != 'data_pipeline' or schedule in ('1f1b', 'gpipe')"
        " or num_layers >= 2 * pipeline_degree",
    )
