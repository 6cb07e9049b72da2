"""The knobs of a user's own training loop: which act through `trial.prepare`, and their values here."""

from typing import Final

from search_spaces.knobs import Option
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.communication import BUCKET_MEGABYTES, REDUCTION
from search_spaces.knobs.compilation import COMPILE_SCOPE
from search_spaces.knobs.degrees import SHARD_DEGREE, TENSOR_DEGREE
from search_spaces.knobs.determinism import DETERMINISTIC
from search_spaces.knobs.kernels import ATTENTION_BACKEND
from search_spaces.knobs.memory_budget import ACTIVATION_MEMORY_BUDGET
from search_spaces.knobs.offload import CPU_OFFLOAD
from search_spaces.knobs.parallelism import PARALLELISM
from search_spaces.knobs.precision import PRECISION
from search_spaces.knobs.recomputation import CHECKPOINT_EVERY
from search_spaces.knobs.runtime import (
    ACTIVATION_CHECKPOINTING,
    COMPACT_MEMORY,
    COMPILE,
    CUDNN_AUTOTUNE,
    MATMUL_PRECISION,
    MEMORY_FORMAT,
    OPTIMIZER_IMPLEMENTATION,
    THREADS,
)

CLIP_NORM: Final = Option("clip_norm", "bound on the norm of the gradient; 0 for none", 0.0)
LOCAL_BATCH_NORM: Final = Option(
    "local_batch_norm", "whether batch norms may see the rows of a microbatch alone", False
)
# What acts through `trial.prepare`; each strategy has options of its own besides.
PREPARED: Final = (
    PRECISION,
    MATMUL_PRECISION,
    COMPILE,
    COMPILE_SCOPE,
    ACTIVATION_MEMORY_BUDGET,
    ACTIVATION_CHECKPOINTING,
    CHECKPOINT_EVERY,
    ACCUMULATION,
    OPTIMIZER_IMPLEMENTATION,
    MEMORY_FORMAT,
    CUDNN_AUTOTUNE,
    COMPACT_MEMORY,
    THREADS,
    ATTENTION_BACKEND,
    DETERMINISTIC,
    PARALLELISM,
    SHARD_DEGREE,
    TENSOR_DEGREE,
    BUCKET_MEGABYTES,
    REDUCTION,
    CPU_OFFLOAD,
    CLIP_NORM,
    LOCAL_BATCH_NORM,
)
