"""The table of knobs: each option is a row, and each knob is a row that groups its options.

A knob whose code does more is a file of this folder. The trainer or a workload reads the options
here with `Option.value`.
"""

import os
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from search_spaces.errors import UsageError
from search_spaces.hardware import PRECISIONS, Hardware
from search_spaces.parameters import Value

from .base import CHANGES_THE_RESULT, COMPUTES_THE_SAME, Knob, KnobSpace, Option

OPTIMIZER = Option(
    "optimizer", "rule by which weights are updated", "adamw", ("adamw", "adam", "sgd")
)
LEARNING_RATE = Option(
    "learning_rate",
    "step size at its peak",
    1e-3,
    low=1e-5,
    high=1e-1,
    log=True,
    affects=CHANGES_THE_RESULT,
)
WARMUP_UPDATES = Option(
    "warmup_updates",
    "updates until the learning rate is at its peak",
    400,
    low=10,
    high=4000,
    log=True,
    affects=CHANGES_THE_RESULT,
)
WEIGHT_DECAY = Option(
    "weight_decay",
    "pull of the weights towards 0",
    1e-4,
    low=1e-6,
    high=1e-1,
    log=True,
    affects=CHANGES_THE_RESULT,
    unset=0.0,
)
MOMENTUM = Option(
    "momentum",
    "share of the last step in the next one, under sgd",
    0.9,
    low=0.0,
    high=0.99,
    affects=CHANGES_THE_RESULT,
    requires={"optimizer": ("sgd",)},
)
# torch's SparseAdam: moments of other rows stay as they are, and these rows get no weight decay.
SPARSE_GRADIENTS = Option(
    "sparse_gradients",
    "adam updates only those rows of embeddings that the batch looks up",
    False,
    (False, True),
)

# From how many examples an update is computed.
BATCH_TOKENS = Option(
    "batch_tokens",
    "tokens in the global batch of an update",
    2048,
    (512, 1024, 2048, 4096, 8192),
    ordered=True,
    log=True,
)
BATCH_SIZE = Option(
    "batch_size",
    "items in the global batch of an update",
    64,
    (16, 32, 64, 128, 256),
    ordered=True,
    log=True,
)
ACCUMULATION = Option(
    "accumulation",
    "parts in which a batch is computed, one after the other",
    1,
    (1, 2, 4),
    ordered=True,
    affects=COMPUTES_THE_SAME,
)

# The size of a Transformer, and its regularisation.
NUM_LAYERS = Option("num_layers", "blocks of the encoder, and of the decoder", 3, low=1, high=6)
WIDTH = Option("width", "size of the hidden vectors", 256, (64, 128, 256, 512), ordered=True)
NUM_HEADS = Option(
    "num_heads", "attention heads; they divide the width", 4, (1, 2, 4, 8), ordered=True
)
DROPOUT = Option(
    "dropout",
    "probability that an activation is set to 0",
    0.1,
    low=0.0,
    high=0.5,
    affects=CHANGES_THE_RESULT,
)
LABEL_SMOOTHING = Option(
    "label_smoothing",
    "probability that is spread over all classes",
    0.1,
    low=0.0,
    high=0.3,
    affects=CHANGES_THE_RESULT,
)
# All layouts compute the same function. `separate` has three projections. `packed` has one whose
# output is all queries, then all keys, then all values; `interleaved` alternates head by head.
ATTENTION_LAYOUT = Option(
    "attention_layout",
    "how the projections of queries, keys and values lie in memory",
    "interleaved",
    ("interleaved", "separate", "packed"),
    affects=COMPUTES_THE_SAME,
)
# Wijmans et al. 2024, https://arxiv.org/abs/2411.09009: one chunk of rows at a time goes from
# hidden states to the gradients. It saves memory if the vocabulary is large.
CHUNKED_LOSS = Option(
    "chunked_loss",
    "compute logits and cross-entropy in chunks of rows, which keeps no logits",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
    unset=None,  # in chunks on CPUs, where it is faster
)

# Number formats.
PRECISION = Option(
    "precision",
    "number format of forward and backward",
    "fp32",
    PRECISIONS,
    needed=True,
    untuned=("fp64",),
)
FLOAT8 = Option(
    "float8",
    "matrix products of large linear layers in 8 bits, each row with a scale of its own",
    "off",
    ("off", "rowwise"),
    requires={"precision": ("bf16",)},
)
MATMUL_PRECISION = Option(
    "matmul_precision",
    "library of float32 matrix products on CPUs; on GPUs precision decides",
    "highest",
    ("highest", "high", "medium"),
    affects=COMPUTES_THE_SAME,
    unset=None,  # "high" under tf32, otherwise "highest"
)

# Compilation, and activations that are computed again in backward.
COMPILE = Option(
    "compile",
    "mode of torch.compile; reduce-overhead and max-autotune record CUDA graphs, "
    "cudagraphs records them and compiles nothing",
    "off",
    ("off", "default", "reduce-overhead"),
    affects=COMPUTES_THE_SAME,
    on_request=("max-autotune", "cudagraphs"),
)
RECORDS_GRAPHS: Final = ("reduce-overhead", "max-autotune", "cudagraphs")  # modes of `compile`
# Layers that are alike share their code, so that compilation takes less time.
COMPILE_SCOPE = Option(
    "compile_scope",
    "compile the whole model, or each layer of its plan by itself",
    "model",
    ("model", "layers"),
    affects=COMPUTES_THE_SAME,
    requires={"compile": ("default", "reduce-overhead", "max-autotune", "cudagraphs")},
)
ACTIVATION_CHECKPOINTING = Option(
    "activation_checkpointing",
    "activations computed again in backward: none, all but matrix products, or whole layers",
    "none",
    ("none", "selective", "layers"),
    affects=COMPUTES_THE_SAME,
)
CHECKPOINT_EVERY = Option(
    "checkpoint_every",
    "recompute every n-th layer only, under activation_checkpointing",
    1,
    (1, 2, 3, 4),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"activation_checkpointing": ("selective", "layers")},
)

# Memory, loading and threads.
MEMORY_FORMAT = Option(
    "memory_format",
    "order of the dimensions of images in memory",
    "contiguous",
    ("contiguous", "channels_last"),
    affects=COMPUTES_THE_SAME,
)
LOADER_WORKERS = Option(
    "loader_workers",
    "1 prepares batches in a thread of their own, 0 in the training thread",
    0,
    (0, 1),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    unset=None,  # 1 on a GPU if a rank has a core to spare
)
PREFETCH = Option(
    "prefetch",
    "batches that the thread prepares ahead",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"loader_workers": tuple(range(1, 65))},
)
COMPACT_MEMORY = Option(
    "compact_memory",
    "return every large block to the system at once (CPU); 5 to 15% slower",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)
THREADS = Option(
    "threads",
    "CPU threads of a rank; by default the cores of its slot",
    1,
    ordered=True,
    affects=frozenset({"speed"}),
    unset=None,
)

# Kernels.
ATTENTION_BACKEND = Option(
    "attention_backend",
    "library that computes attention, if it can; auto lets torch choose",
    "auto",
    ("auto", "flash", "cudnn", "efficient", "math"),
    affects=COMPUTES_THE_SAME,
)
DETERMINISTIC = Option(
    "deterministic",
    "use only algorithms that give the same bits each time, if torch has them",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
)

# Several ranks; `parallelism.py` has the strategies.
TENSOR_DEGREE = Option(
    "tensor_degree",
    "ranks that share each product of one replica, under data_tensor",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"parallelism": ("data_tensor",)},
)
SHARD_DEGREE = Option(
    "shard_degree",
    "ranks that share the parameters of one replica, under hsdp",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"parallelism": ("hsdp",)},
)
PIPELINE_DEGREE = Option(
    "pipeline_degree",
    "stages of one replica, under data_pipeline",
    2,
    (2, 4, 8),
    ordered=True,
    affects=COMPUTES_THE_SAME,
    requires={"parallelism": ("data_pipeline",)},
)
# Li et al. 2020, https://arxiv.org/abs/2006.15704: small buckets are sent earlier during backward,
# large ones cost fewer calls.
BUCKET_MEGABYTES = Option(
    "bucket_megabytes",
    "gradients that ddp reduces in one call",
    25,
    (1, 5, 25, 100),
    ordered=True,
    log=True,
    affects=COMPUTES_THE_SAME,
    requires={"parallelism": ("ddp",)},
    unset=None,  # torch's own: a small first bucket, then 25 MB
)
REDUCTION = Option(
    "reduction_precision",
    "format in which fsdp sums gradients over ranks, under a half precision",
    "fp32",
    ("fp32", "half"),
    requires={"parallelism": ("fsdp", "hsdp"), "precision": ("bf16", "fp16")},
)
# Ren et al. 2021 (https://arxiv.org/abs/2101.06840).
CPU_OFFLOAD = Option(
    "cpu_offload",
    "fsdp keeps parameters, gradients and optimizer state in main memory",
    False,
    (False, True),
    affects=COMPUTES_THE_SAME,
    requires={"parallelism": ("fsdp", "hsdp")},
)


class OptimizerKnob(Knob):
    """The optimizer, its learning rate with warm-up, weight decay, and momentum under sgd.

    Momentum is left out with the optimizer, unless it is named.
    """

    name = "optimizer"
    summary = "optimizer, learning rate, warm-up and weight decay"
    options = (OPTIMIZER, LEARNING_RATE, WARMUP_UPDATES, WEIGHT_DECAY, MOMENTUM)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        if adjustments.get("optimizer", True) in (False, None):
            adjustments = {"momentum": False, **adjustments}
        return super().declare(hardware, adjustments)


class BatchKnob(Knob):
    """`batch_tokens` or `batch_size`, and `accumulation`, which needs less memory if it is larger.

    Adjustments: `unit` is "items", or "tokens" for texts.
    """

    name = "batch"
    summary = "batch size and gradient accumulation"
    options = (BATCH_TOKENS, BATCH_SIZE, ACCUMULATION)
    constraints = ("batch_tokens >= accumulation", "batch_size >= accumulation")
    keys = ("unit",)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        others = {"tokens": BATCH_SIZE, "items": BATCH_TOKENS}
        unit = adjustments.get("unit", "tokens" if "batch_tokens" in adjustments else "items")
        return super().declare(hardware, {**adjustments, others[unit].name: False})


class PrecisionKnob(Knob):
    """fp32, tf32 (matrix products with 10-bit mantissas), bf16, or fp16 with dynamic loss scaling.

    A format that the hardware only emulates is left out too, unless a user names it.
    """

    name = "precision"
    summary = "number format of training"
    options = (PRECISION,)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        reasons: dict[Any, str] = {}
        if option.choices == PRECISIONS or "defaults" in adjustments:  # those of a workload
            reasons |= hardware.slow
        lacking = {name: hardware.lacks(name) for name in PRECISIONS}
        return {**reasons, **{name: reason for name, reason in lacking.items() if reason}}


class RuntimeKnob(Knob):
    """Compilation, recomputed activations, matrix products, loading of batches, and threads.

    `memory_format` and `compact_memory` are left out unless they are named. If precision is tuned
    too, adjust `matmul_precision` by `when={"precision": "fp32"}`.

    Adjustments: `tune` lists the parameters to take; `cpus` is the number of cores of a worker
        slot.
    """

    name = "runtime"
    summary = "compilation, checkpointing, matrix products, loading and threads"
    options = (
        MATMUL_PRECISION,
        ACTIVATION_CHECKPOINTING,
        COMPILE,
        MEMORY_FORMAT,
        LOADER_WORKERS,
        PREFETCH,
        COMPACT_MEMORY,
        THREADS,
    )
    keys = ("tune", "cpus")
    on_request = (COMPILE, LOADER_WORKERS, PREFETCH)

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        names = [option.name for option in self.options]
        if_named = (MEMORY_FORMAT.name, COMPACT_MEMORY.name)
        usual = [name for name in names if name not in if_named or adjustments.get(name)]
        left_out = dict.fromkeys(set(names) - set(adjustments.get("tune", usual)), False)
        return super().declare(hardware, {**adjustments, **left_out})

    def fit(self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]) -> Option:
        if option is LOADER_WORKERS and hardware.gpus:
            return replace(option, default=1)
        if option is not THREADS:
            return option
        cpus = _cores(hardware, adjustments)
        counts = (*(2**i for i in range(cpus.bit_length()) if 2**i < cpus), cpus)
        return replace(option, choices=counts, default=cpus)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        if option.name == MATMUL_PRECISION.name and hardware.gpus:
            text = "is tf32 on a GPU, which is a value of precision"
            return dict.fromkeys(("high", "medium"), text)
        if option.name == COMPACT_MEMORY.name and hardware.gpus:
            return {True: "is about main memory, trials run on a GPU"}
        if option.name == THREADS.name:
            cpus = _cores(hardware, adjustments)
            text = f"a worker slot has {cpus} cores"
            return {n: text for n in option.choices if isinstance(n, int) and n > cpus}
        if option.name != COMPILE.name:
            return {}
        text = "" if hardware.gpus else "records CUDA graphs and needs a CUDA GPU"
        reasons = dict.fromkeys(("reduce-overhead", "cudagraphs"), text)
        if text := _lacks_compiler(hardware):
            reasons |= dict.fromkeys(("default", "reduce-overhead", "max-autotune"), text)
        return {mode: reason for mode, reason in reasons.items() if reason}


def _cores(hardware: Hardware, adjustments: Mapping[str, Any]) -> int:
    return min(int(adjustments.get("cpus", 1)), hardware.num_cpus)


def _lacks_compiler(hardware: Hardware) -> str:
    """What torch.compile lacks here; "" if nothing."""
    variable, usual, other, need = ("CXX", "g++", "clang++", "a C++ compiler")
    if hardware.gpus:  # Triton compiles the functions that launch its kernels, for this Python
        variable, usual, other, need = ("CC", "gcc", "clang", "a C compiler on GPUs (for Triton)")
    compiler = os.environ.get(variable) or usual
    if not (shutil.which(compiler) or shutil.which(other)):
        return f"torch.compile needs {need}, {compiler} is missing"
    if hardware.gpus and not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        return "torch.compile needs Python's header files on GPUs (for Triton), Python.h is missing"
    return ""


class OffloadKnob(Knob):
    """`fsdp` with its shards in main memory, and each step of the optimizer on the CPU."""

    name = "offload"
    summary = "fsdp with its shards in main memory"
    options = (CPU_OFFLOAD,)
    on_request = options

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        return {} if hardware.gpus else {True: "trials run in main memory already"}


_NAMES: Final = {
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}
_AMPERE: Final = (8, 0)  # what flash and cuDNN need


class KernelsKnob(Knob):
    """Flash attention (Dao 2023), cuDNN, memory-efficient attention, or plain matrix products.

    https://arxiv.org/abs/2307.08691. A library may lack a kernel for a mask, a format or a width of
    heads; then torch takes the next of the others, so every value can run. A workload that computes
    attention itself (translation with `attention_kernel: math`) is not affected.
    """

    name = "kernels"
    summary = "library that computes attention"
    options = (ATTENTION_BACKEND,)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        if not hardware.gpus:
            return {name: f"{name} attention needs a CUDA GPU" for name in ("cudnn", "efficient")}
        if min(gpu.capability for gpu in hardware.gpus) < _AMPERE:
            text = "attention needs a CUDA GPU of capability 8.0 or later"
            return {name: f"{name} {text}" for name in ("flash", "cudnn")}
        return {}

    def applied(self, values: Mapping[str, Any]) -> AbstractContextManager[Any]:
        chosen = ATTENTION_BACKEND.value(values)
        if chosen == "auto":
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        others = [name for name in _NAMES if name != chosen] if chosen != "math" else []
        order = [getattr(SDPBackend, _NAMES[name]) for name in (chosen, *others)]
        return sdpa_kernel(order, set_priority=True)


class DeterminismKnob(Knob):
    """Deterministic algorithms, which are slower on a GPU; a CPU's are deterministic already.

    An operation that has none computes as before, and torch warns in the trial's log.
    """

    name = "determinism"
    summary = "the same bits each time"
    options = (DETERMINISTIC,)
    on_request = (DETERMINISTIC,)

    @contextmanager
    def applied(self, values: Mapping[str, Any]) -> Iterator[None]:
        if not DETERMINISTIC.value(values):
            yield
            return
        import torch

        # cuBLAS reads it with the first product of a process; workers set it when they start.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        benchmark = torch.backends.cudnn.benchmark
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False  # which kernel wins would differ from run to run
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)
            torch.backends.cudnn.benchmark = benchmark


MIN_FEATURES: Final = 1024  # of input and output; smaller products are slower than in bf16
_MULTIPLE: Final = 16  # of features, which the kernels need
_HOPPER: Final = (9, 0)  # whose kernels scale by rows
_GPU: Final = "needs an NVIDIA GPU of capability 9.0 or later"
_PACKAGE: Final = "needs the package torchao: pip install 'automl-sweep[float8]'"


class Float8Knob(Knob):
    """torchao's float8 training with a scale for each row (https://arxiv.org/abs/2209.05433).

    Weights, moments and all other operations stay as they are under bf16. Layers with fewer than
    1024 inputs or outputs are left as they are; a model without larger ones trains in bf16.
    """

    name = "float8"
    summary = "matrix products in 8 bits"
    options = (FLOAT8,)
    on_request = (FLOAT8,)
    constraints = ("float8 == 'off' or parallelism in ('single', 'ddp', 'fsdp', 'hsdp')",)

    def lacks(
        self, option: Option, hardware: Hardware, adjustments: Mapping[str, Any]
    ) -> Mapping[Value, str]:
        # AMD's GPUs have no tf32.
        fast = all(gpu.capability >= _HOPPER for gpu in hardware.gpus)
        if not (hardware.gpus and fast and "tf32" in hardware.precisions):
            return {"rowwise": _GPU}
        if find_spec("torchao") is None:
            return {"rowwise": _PACKAGE}
        return {}

    def change(self, model: Any, values: Mapping[str, Any]) -> None:
        """See `Knob.change`.

        Raises:
            UsageError: torchao is not installed, or this process has no such GPU.
        """
        if FLOAT8.value(values) == "off":
            return
        import torch

        can = torch.cuda.is_available() and torch.cuda.get_device_capability() >= _HOPPER
        if not can or find_spec("torchao") is None:
            raise UsageError(f"float8 {_PACKAGE if find_spec('torchao') is None else _GPU}")
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        config = Float8LinearConfig.from_recipe_name("rowwise")
        # The rows of a batch are the inner dimension of a weight's gradient.
        object.__setattr__(config, "pad_inner_dim", True)
        convert_to_float8_training(model, config=config, module_filter_fn=_is_large)


def _is_large(module: Any, name: str) -> bool:
    """Whether a linear layer is large enough, and has sizes that the kernels take."""
    sizes = (module.in_features, module.out_features)
    return min(sizes) >= MIN_FEATURES and not any(size % _MULTIPLE for size in sizes)


_DEGREES: Final = (TENSOR_DEGREE, SHARD_DEGREE, PIPELINE_DEGREE)
_COMMUNICATION: Final = (BUCKET_MEGABYTES, REDUCTION)
TABLE: Final[Mapping[str, type[Knob]]] = {
    knob.name: knob
    for knob in (
        OptimizerKnob,
        BatchKnob,
        PrecisionKnob,
        RuntimeKnob,
        OffloadKnob,
        KernelsKnob,
        DeterminismKnob,
        Float8Knob,
        Knob.row(
            "architecture",
            "layers, width, heads, dropout and label smoothing",
            NUM_LAYERS,
            WIDTH,
            NUM_HEADS,
            DROPOUT,
            LABEL_SMOOTHING,
            constraints=("width % num_heads == 0",),
        ),
        Knob.row("attention", "layout of the attention projections", ATTENTION_LAYOUT),
        Knob.row("loss", "cross-entropy in chunks", CHUNKED_LOSS),
        Knob.row("compilation", "what is compiled", COMPILE_SCOPE),
        Knob.row("recomputation", "how many layers are recomputed", CHECKPOINT_EVERY),
        Knob.row(
            "communication",
            "buckets of ddp, and the format of sums of fsdp",
            *_COMMUNICATION,
            on_request=_COMMUNICATION,
        ),
        Knob.row(
            "sparsity",
            "gradients of the rows of embeddings that were looked up",
            SPARSE_GRADIENTS,
            constraints=(
                "not sparse_gradients or parallelism == 'single'",  # NCCL sums no such gradients
                "not sparse_gradients or optimizer in ('adamw', 'adam')",
            ),
        ),
        Knob.row(
            "degrees",
            "ranks of one replica under data_tensor, hsdp and data_pipeline",
            *_DEGREES,
            on_request=_DEGREES,
            constraints=(
                "parallelism != 'data_tensor' or ranks % tensor_degree == 0",
                "parallelism != 'data_tensor' or num_heads % tensor_degree == 0",
                "parallelism != 'hsdp' or ranks % shard_degree == 0",
                "parallelism != 'data_pipeline' or ranks % pipeline_degree == 0",
                "parallelism != 'data_pipeline' or num_layers >= pipeline_degree",
                "parallelism != 'data_pipeline' or schedule in ('1f1b', 'gpipe')"
                " or num_layers >= 2 * pipeline_degree",
            ),
        ),
    )
}
