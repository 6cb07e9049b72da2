"""Data x pipeline parallelism: replicas of a model, each of which is cut into stages."""

from dataclasses import replace

from search_spaces.knobs.table import PIPELINE_DEGREE
from workers.parallel.strategies.pipeline import ONE_STAGE, Pipeline


class DataPipeline(Pipeline):
    """`pipeline_degree` stages a replica; the batch is shared out among the replicas."""

    needs = replace(
        Pipeline.needs,
        summary="replicas of a model cut into stages, the batch shared out among them",
        min_ranks=4,
        constraints=(
            "ranks % 2 == 0",
            "num_layers >= 2",
            f"schedule in {ONE_STAGE} or num_layers >= 4",
        ),
    )
    degree = PIPELINE_DEGREE
