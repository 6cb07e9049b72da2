"""Building the model of a trial as its settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from workers.device.precision import weights_in

from .torch_flags import recompute

if TYPE_CHECKING:
    from workers.workload import Trainable

    from .settings import Settings


def build_model(
    workload: Trainable, settings: Settings, device: torch.device, seed: int
) -> torch.nn.Module:
    """The workload's model in train mode on the device; its weights are a function of the seed."""
    torch.manual_seed(seed)
    with weights_in("fp32"):  # the same numbers under every precision
        model = workload.build_model()
    model.to(device, torch.get_default_dtype())
    channels_last = settings.memory_format == "channels_last"
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=memory_format)
    recompute(model, workload.plan(model).layers, settings.activation_checkpointing)
    if settings.compile != "off":
        model.compile(mode=settings.compile)
    return model.train()
