"""The three workloads of the comparison of deep-learning frameworks on a CUDA GPU, beside its published seconds.

    python benchmarks/training/cuda_workloads.py [--images DIR] [--reviews DIR]

The published seconds are PyTorch's on one P100 (https://github.com/ilkarman/DeepLearningFrameworks): training the
VGG-style network for 10 epochs on CIFAR-10, 1,000 images through ResNet-50, training a GRU for 3 epochs on IMDB.
Without the real data, generated data of the same size are used: the seconds are the same, the accuracy means nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from workers.context import Context
from workers.protocol import Assignment
from workers.run import run

PUBLISHED = {"image_classification": 51.0, "feature_extraction": 1.9, "sentiment": 16.0}
TUNED: Mapping[str, Mapping[str, Any]] = {
    "image_classification": {"precision": "bf16", "memory_format": "channels_last", "cudnn_autotune": True},
    "feature_extraction": {
        "precision": "bf16", "memory_format": "channels_last", "fold_batch_norm": True, "graph": "traced",
        "batch_size": 64, "cudnn_autotune": True,
    },
    "sentiment": {"layout": "time_major", "batching": "bucketed", "precision": "bf16", "loader_workers": 1},
}  # fmt: skip


def once(name: str, params: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[float, str]:
    """Training seconds (for features, those of 1,000 images), and the quality that goes with them."""
    with tempfile.TemporaryDirectory() as folder:
        one = Assignment(
            "cuda",
            0,
            1,
            params,
            name,
            folder,
            data,
            {"validation": 0.0} if "train" in data else {},
            gpus=1,
        )
        outcome = run(Context(one, device="cuda:0"))
    metrics = outcome.metrics
    if outcome.failure:
        return float("nan"), f"{outcome.failure}: {outcome.message}"
    if name == "feature_extraction":
        return metrics["seconds_per_1000_images"], f"cosine {metrics['cosine']:.5f}"
    return metrics["train_seconds"], f"accuracy {metrics['accuracy']:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", help="folder with CIFAR-10")
    parser.add_argument("--reviews", help="folder with aclImdb")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA GPU here; nothing was measured")
        return
    images = (
        {"name": "cifar10", "dir": given.images}
        if given.images
        else {"train": 50_000, "test": 10_000}
    )
    reviews = (
        {"name": "imdb", "dir": given.reviews}
        if given.reviews
        else {"train": 25_000, "test": 1_000}
    )
    data = {"image_classification": images, "feature_extraction": {}, "sentiment": reviews}
    print(torch.cuda.get_device_name(), torch.__version__)
    print(
        f"{'workload':22s} {'P100, published':>16s} {'trial 0':>10s} {'tuned':>10s}   quality of both"
    )
    for name, published in PUBLISHED.items():
        (first, quality), (second, other) = (
            once(name, {}, data[name]),
            once(name, TUNED[name], data[name]),
        )
        print(
            f"{name:22s} {published:14.1f} s {first:8.2f} s {second:8.2f} s   {quality}; {other}",
            flush=True,
        )


if __name__ == "__main__":
    main()
