"""Three workloads on a CUDA GPU, beside the published seconds of a comparison of frameworks.

    python benchmarks/training/cuda_workloads.py [--images DIR] [--reviews DIR]

The published seconds are PyTorch's on one P100 (https://github.com/ilkarman/DeepLearningFrameworks):
10 epochs of a VGG-style network on CIFAR-10, 1,000 images through ResNet-50, and 3 epochs of a GRU
on IMDB. Without the real data, generated data of the same size give the same seconds and a
meaningless accuracy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.common.options import parser
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run

PUBLISHED = {"image_classification": 51.0, "feature_extraction": 1.9, "sentiment": 16.0}
TUNED: Mapping[str, Mapping[str, Any]] = {
    "image_classification": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "cudnn_autotune": True,
    },
    "feature_extraction": {
        "precision": "bf16",
        "memory_format": "channels_last",
        "fold_batch_norm": True,
        "graph": "traced",
        "batch_size": 64,
        "cudnn_autotune": True,
    },
    "sentiment": {
        "layout": "time_major",
        "batching": "bucketed",
        "precision": "bf16",
        "loader_workers": 1,
    },
}


def once(name: str, params: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[float, str]:
    """Seconds of training (of 1,000 images for features), and the quality."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"validation": 0.0} if "train" in data else {}
        one = Assignment("cuda", 0, 1, params, name, folder, data, fixed, gpus=1)
        outcome = run(Context(one, device="cuda:0"))
    metrics = outcome.metrics
    if outcome.failure:
        return float("nan"), f"{outcome.failure}: {outcome.message}"
    if name == "feature_extraction":
        return metrics["seconds_per_1000_images"], f"cosine {metrics['cosine']:.5f}"
    return metrics["train_seconds"], f"accuracy {metrics['accuracy']:.4f}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--images", help="folder with CIFAR-10")
    options.add_argument("--reviews", help="folder with aclImdb")
    given = options.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU: nothing was measured")
        return
    images: dict[str, Any] = {"train": 50_000, "test": 10_000}
    if given.images:
        images = {"name": "cifar10", "dir": given.images}
    reviews: dict[str, Any] = {"train": 25_000, "test": 1_000}
    if given.reviews:
        reviews = {"name": "imdb", "dir": given.reviews}
    data = {"image_classification": images, "feature_extraction": {}, "sentiment": reviews}
    print(torch.cuda.get_device_name(), torch.__version__)
    heads = f"{'P100, published':>16s} {'trial 0':>10s} {'tuned':>10s}"
    print(f"{'workload':22s} {heads}   quality of both")
    for name, published in PUBLISHED.items():
        first, quality = once(name, {}, data[name])
        second, other = once(name, TUNED[name], data[name])
        figures = f"{published:14.1f} s {first:8.2f} s {second:8.2f} s"
        print(f"{name:22s} {figures}   {quality}; {other}", flush=True)


if __name__ == "__main__":
    main()
