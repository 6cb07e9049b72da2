"""What the trainer reads from a configuration, with the value of each option that is not given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from search_spaces.errors import UsageError

if TYPE_CHECKING:
    from workers.workload import Workload

COMPILE_MODES = ("off", "default", "reduce-overhead")
CHECKPOINTING = ("none", "selective", "layers")
MEMORY_FORMATS = ("contiguous", "channels_last")
_CHOICES = {
    "compile": COMPILE_MODES,
    "activation_checkpointing": CHECKPOINTING,
    "memory_format": MEMORY_FORMATS,
}


@dataclass(frozen=True)
class Settings:
    """Options of training. Each is looked up in `params`, then `fixed`, then the workload's defaults.

    Args:
        parallelism, precision: see `workers.parallel` and `workers.device.precision`.
        accumulation: microbatches of an update, one after the other.
        clip_norm: bound on the norm of the gradient; 0 for none.
        train_seconds, max_updates, max_epochs: training ends at whichever comes first; one epoch where none is given.
        evaluate_seconds, evaluate_updates: how often metrics are reported besides at the end.
        probe_updates: after so many, speed and memory are reported, before an evaluation is paid for; 0 for not.
        checkpoint_seconds, checkpoint_updates: how often a checkpoint is written besides at the end and at a pause.
        optimized_metric: the metric that evaluations are compared by; the workload declares its direction.
        patience: training ends after so many evaluations in a row that were no better than the best.
        plateau_evaluations: after so many, the learning rate is multiplied by `plateau_factor`.
        average_best: at the end, the mean of the weights at so many of the best evaluations takes the place of the
            last ones (Junczys-Dowmunt et al. 2016, https://aclanthology.org/W16-2316); 0 for none.
        matmul_precision: of float32 products; None as the precision has it.
        activation_checkpointing: "layers" recomputes each layer in backward, "selective" all but matrix products.
        compile: mode of torch.compile, or "off".
        memory_format: "channels_last" for models of images.
        loader_workers: 1 prepares batches in a thread of its own, `prefetch` ahead; 0 in the training thread.
        cudnn_autotune: let cuDNN try its convolution kernels.
        compact_memory: on CPUs give every large block back to the system at once: what is resident is then what is in
            use (else up to 2.4 times as much was seen), for some 5 to 15% more time.
        threads: CPU threads of a rank; None for the cores of its slot.
        profile_updates: trace so many updates with torch's profiler (`workers.device.profiling`); 0 for none.
    """

    parallelism: str = "single"
    precision: str = "fp32"
    accumulation: int = 1
    clip_norm: float = 1.0
    train_seconds: float | None = None
    max_updates: int | None = None
    max_epochs: int | None = None
    evaluate_seconds: float | None = None
    evaluate_updates: int | None = None
    probe_updates: int = 0
    checkpoint_seconds: float | None = 60.0
    checkpoint_updates: int | None = None
    optimized_metric: str | None = None
    patience: int | None = None
    plateau_evaluations: int | None = None
    plateau_factor: float = 0.7
    average_best: int = 0
    matmul_precision: str | None = None
    activation_checkpointing: str = "none"
    compile: str = "off"
    memory_format: str = "contiguous"
    loader_workers: int = 0
    prefetch: int = 2
    cudnn_autotune: bool = False
    compact_memory: bool = False
    threads: int | None = None
    profile_updates: int = 0

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} is one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if self.optimized_metric is None and (
            self.patience or self.plateau_evaluations or self.average_best
        ):
            raise UsageError("patience, plateau_evaluations and average_best need optimized_metric")
        if self.accumulation < 1:
            raise UsageError(f"accumulation must be at least 1, got {self.accumulation}")

    @classmethod
    def of(cls, workload: Workload) -> Settings:
        """The settings of a workload under its configuration."""
        given = options(workload)
        found = {f.name: given[f.name] for f in fields(cls) if f.name in given}
        settings = cls(**found)
        if settings.train_seconds is settings.max_updates is settings.max_epochs is None:
            return cls(**{**found, "max_epochs": 1})
        return settings


OPTIMIZER_OPTIONS: Final[Mapping[str, Any]] = {
    "optimizer": "adamw",
    "optimizer_implementation": "auto",
    "weight_decay": 0.0,
    "momentum": 0.9,
    "beta1": 0.9,
    "beta2": 0.98,
    "epsilon": 1e-9,
}
STRATEGY_OPTIONS: Final[Mapping[str, Any]] = {
    "ranks": 2,
    "backend": "",  # of torch.distributed; "" for gloo on CPUs, nccl on GPUs
    "static_graph": False,  # ddp: all updates have the same graph
    "unused_parameters": False,  # ddp: some updates do not reach every parameter
    "reshard_after_forward": True,  # fsdp
    "schedule": "1f1b",  # pipeline
    "num_microbatches": 4,  # pipeline
    "sequence_parallel": False,  # tensor, data_tensor: each rank computes the norms of some positions
    "tensor_degree": 2,  # data_tensor
    "pipeline_degree": 2,  # data_pipeline
}
TRAINER_OPTIONS: Final[Mapping[str, Any]] = {
    **{option.name: option.default for option in fields(Settings)}, **OPTIMIZER_OPTIONS, **STRATEGY_OPTIONS
}  # fmt: skip
"""What every workload that is trained takes besides its own options, with the defaults."""


def options(workload: Workload) -> Mapping[str, Any]:
    """Every option of a workload: its defaults, overridden by what is fixed, overridden by what is tuned."""
    return {**workload.defaults, **workload.fixed, **workload.params}
