"""The estimate of memory: what it is made of, and that it allocates nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from toy import Toy

from search_spaces.errors import UsageError
from workers.device.peak_memory import PeakMemory, nbytes
from workers.memory.estimate import estimate

SIZES = {"width": 64, "vocabulary": 500, "num_layers": 2, "rows": 16}


def of(ranks=1, device="cuda", **params):
    """Without what CPUs take besides."""
    return estimate(Toy({**SIZES, **params}, {}, {}), ranks, device)


def test_parameters_gradients_and_optimizer_state_are_exact():
    whole = sum(nbytes(p) for p in Toy(SIZES, {}, {}).build_model().parameters())
    parts = of().parts
    assert parts["parameters"] == parts["gradients"] == whole
    assert parts["optimizer"] == pytest.approx(2 * whole, rel=1e-3)
    assert of(optimizer="sgd", momentum=0.0).parts["optimizer"] == 0
    assert of().peak_bytes == sum(parts.values())


def test_what_needs_less_is_estimated_at_less():
    plain = of(rows=64).peak_bytes
    assert of(rows=128).peak_bytes > 1.5 * plain
    selective, layers = (
        of(rows=64, activation_checkpointing=how).peak_bytes for how in ("selective", "layers")
    )
    assert plain > selective > layers
    assert of(rows=64, accumulation=4).peak_bytes < 0.6 * plain
    assert of(2, rows=64, parallelism="ddp").peak_bytes < plain
    for strategy in ("fsdp", "tensor", "pipeline"):
        parts = of(2, rows=64, parallelism=strategy).parts
        assert parts["optimizer"] < 0.75 * of().parts["optimizer"], strategy


def test_a_model_of_many_terabytes_takes_no_memory():
    import torch

    before = PeakMemory(torch.device("cpu"))
    found = of(width=2**17, num_heads=4, rows=1)
    assert found.peak_bytes > 5e12
    assert before.bytes() < 500e6
    assert len(found.modules) <= 10
    assert next(iter(found.modules)).endswith(("inner", "outer"))


def test_an_unknown_option_is_named():
    with pytest.raises(UsageError, match="precision"):
        of(precision="int3")


TRAIN = """
import sys, torch
from workers.device.peak_memory import PeakMemory, allocate_by
from workers.memory.fake_tensors import LiveStorages

layout = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[sys.argv[1]]
layer = torch.nn.Conv2d(40, 72, 3, padding=1).to(memory_format=layout)

def train(batch):
    torch.manual_seed(0)
    images = torch.rand(batch, 40, 32, 32).contiguous(memory_format=layout)
    found = layer(images.requires_grad_())
    found.backward(torch.ones_like(found))

allocate_by(1 << 17, 1 << 18)  # as `compact_memory` does
train(2)  # libraries are loaded
before = PeakMemory(torch.device("cpu"))
train(128)
measured = before.bytes()
mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
with mode, LiveStorages(1, on_cpu=True) as found:
    train(128)
print(found.peak, measured)
"""


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_a_convolution_is_estimated_with_what_it_copies(memory_format):
    # In a process of its own: the heap of this one has free blocks of earlier tests.
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, memory_format], capture_output=True, text=True, check=True
    )
    estimated, measured = map(int, done.stdout.split())
    assert estimated == pytest.approx(measured, rel=0.1)
