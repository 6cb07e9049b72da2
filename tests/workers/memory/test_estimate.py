"""The estimate of memory: what it is made of, and that it allocates nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional
from toy import Toy

import workers.memory as estimating
from search_spaces.errors import UsageError
from workers.device.peak_memory import PeakMemory, nbytes
from workers.device.precision import _FP32_NAMES, AutocastOfCuda, device_type, planned_for
from workers.memory import estimate, gpu_bytes
from workers.parallel.mesh import Mesh
from workers.workloads.translation import Translation

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
    for strategy in ("fsdp", "tensor"):
        parts = of(2, rows=64, parallelism=strategy).parts
        assert parts["optimizer"] < 0.75 * of().parts["optimizer"], strategy


def test_tf32_takes_the_memory_of_fp32_and_stages_are_not_estimated():
    fp32, tf32 = (of(precision=name) for name in ("fp32", "tf32"))
    assert (tf32.peak_bytes, tf32.parts) == (fp32.peak_bytes, fp32.parts)
    with pytest.raises(UsageError, match="pipeline"):
        of(2, parallelism="pipeline")


def translation(batch, length, words, device="cuda", **params):
    """The estimate of a Transformer with six layers of width 512 on one batch without padding."""
    shape = (batch, length)

    class OneBatch(Translation):
        prepared = SimpleNamespace(vocabulary=range(words))

        def train_batches(self, epoch):
            yield {name: torch.ones(shape, dtype=torch.long) for name in NAMES}

    sizes = {"width": 512, "num_layers": 6, "num_heads": 8, "max_length": 2100}
    return estimate(OneBatch({**sizes, **params}, {"name": "builtin"}, {}), 1, device)


NAMES = ("source", "shifted", "labels")


def test_translation_is_estimated_as_a_gpu_computes_it():
    """Fused attention, whole logits, and dropout of torch; on a CPU none of these."""
    found = translation(128, 64, 32_000, precision="bf16")
    assert found.peak_bytes / 1e9 == pytest.approx(5.7, rel=0.02)
    long = {"precision": "bf16", "num_layers": 1}
    on_gpu, on_cpu = (translation(16, 2048, 2_000, where, **long) for where in ("cuda", "cpu"))
    assert on_gpu.peak_bytes < 0.4 * on_cpu.peak_bytes, "attention keeps no scores"


def test_a_gpu_is_planned_inside_the_estimate_only():
    tensor = torch.zeros(1)
    with planned_for("cuda"):
        assert device_type(tensor) == "cuda"
    assert device_type(tensor) == "cpu"


def test_what_a_process_takes_of_a_gpu_besides_grows_with_its_neighbours():
    one, two, eight = (gpu_bytes(10**9, Mesh(0, ranks, data=ranks)) for ranks in (1, 2, 8))
    assert one == 500_000_000 + 2**25 + 10**8
    assert (two - one, eight - one) == (2**27, 2**28)
    square = gpu_bytes(10**9, Mesh(0, 4, data=2, tensor=2))
    assert square - one == 2**28, "a communicator for each axis"
    assert of().device_bytes > 5e8
    assert of(device="cpu").device_bytes == 0


def test_a_model_of_many_terabytes_takes_no_memory():
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
from workers.device.precision import LiveStorages

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


def test_autocast_casts_what_torch_lists_for_cuda():
    header = Path(torch.__file__).with_name("include") / "ATen" / "autocast_mode.h"
    _, _, lists = header.read_text().partition("#define AT_FORALL_FP32(_)")
    listed = set(re.findall(r" _\((\w+)", lists.partition("AT_FORALL_DIFFERENT")[0]))
    called = {name for name in listed if hasattr(functional, name) or hasattr(torch.Tensor, name)}
    assert len(called) > 40
    assert called <= _FP32_NAMES


def test_softmax_takes_what_it_takes_on_a_gpu(monkeypatch):
    """Under autocast CUDA computes scores that are written out in fp32."""
    scores = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        half = scores @ scores
        assert half.softmax(-1).dtype is torch.bfloat16
        with AutocastOfCuda():
            assert half.softmax(-1).dtype is torch.float32
    math = {"precision": "bf16", "attention_kernel": "math", "num_layers": 1}
    found = translation(16, 512, 2_000, **math).peak_bytes
    monkeypatch.setattr(estimating, "AutocastOfCuda", nullcontext)
    assert found > 1.4 * translation(16, 512, 2_000, **math).peak_bytes
