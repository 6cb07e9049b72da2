"""The benchmark workloads beside plain hand-written PyTorch loops, and their accuracy on real data.

    python benchmarks/workloads.py speed [vgg gru features graph]      seconds of one core, alternating, best of several
    python benchmarks/workloads.py quality sentiment --data DIR        trial 0 on real data, as the sweep would run it

Speed: `plain` is the loop that one would write by hand, `default` is trial 0 through the trainer, and the rows below it
are configurations that change only how the same is computed (or, where it says bf16, to rounding).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from workers import limits
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run
from workers.workloads import WORKLOADS

REPEATS = 3


def measure(
    name: str, params: Mapping[str, Any], data: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, float]:
    """Final metrics of one run on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        one = Assignment("benchmark", 0, 1, params, name, folder, data, fixed)
        outcome = run(Context(one))
    if outcome.failure:
        raise SystemExit(f"{name} {dict(params)}: {outcome.message}\n{outcome.details.get('traceback', '')}")
    return dict(outcome.metrics)


class CpuTime:
    """Stands in for `time` where the trainer's clock reads it: seconds of this process rather than of the wall."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.process_time)


def compare(title: str, unit: str, plain: Callable[[], float], ours: Mapping[str, Callable[[], float]]) -> None:
    """Run all in turn, several times over, and print the best of each beside the plain loop's."""
    best = {"plain": float("inf"), **dict.fromkeys(ours, float("inf"))}
    for _ in range(REPEATS):
        for label, once in {"plain": plain, **ours}.items():
            best[label] = min(best[label], once())
    print(f"\n{title}, {unit}")
    for label, value in best.items():
        print(f"  {label:58s} {value:10.4f}   plain / this = {best['plain'] / value:5.2f}", flush=True)


# The plain loops


class PlainVgg(nn.Sequential):
    def __init__(self) -> None:
        def block(a: int, b: int) -> list[nn.Module]:
            first, second = nn.Conv2d(a, b, 3, padding=1), nn.Conv2d(b, b, 3, padding=1)
            return [first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]

        head = [nn.Flatten(), nn.Linear(6400, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10)]
        super().__init__(*block(3, 50), *block(50, 100), *head)


class PlainGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30_000, 125)
        self.gru, self.dropout, self.output = nn.GRU(125, 100, batch_first=True), nn.Dropout(0.2), nn.Linear(100, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.output(self.dropout(self.gru(self.dropout(self.embedding(words)))[0][:, -1]))


def plain_training(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, updates: int
) -> float:
    """CPU seconds an update of the loop that everybody writes."""
    model.train()
    begun = 0.0
    for update in range(updates + 1):
        if update == 1:
            begun = time.process_time()
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        loss.item()
    return (time.process_time() - begun) / updates


def vgg(updates: int) -> None:
    def plain() -> float:
        model = PlainVgg()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        return plain_training(model, optimizer, torch.rand(640, 3, 32, 32), torch.randint(10, (640,)), updates)

    def ours(**params: Any) -> Callable[[], float]:
        fixed = {"max_updates": updates, "validation": 0.0, "test": False}
        return lambda: measure("image_classification", params, {"train": 640, "test": 10}, fixed)["seconds_per_update"]

    compare("VGG-style network, 64 images a batch", "CPU seconds an update", plain, {
        "default": ours(),
        "channels_last": ours(memory_format="channels_last"),
        "matmul medium": ours(matmul_precision="medium"),
        "bf16": ours(precision="bf16"),
        "bf16 channels_last": ours(precision="bf16", memory_format="channels_last"),
    })  # fmt: skip


def gru(updates: int) -> None:
    def plain() -> float:
        model = PlainGru()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        return plain_training(model, optimizer, torch.randint(30_000, (640, 150)), torch.randint(2, (640,)), updates)

    def ours(**params: Any) -> Callable[[], float]:
        fixed = {"max_updates": updates, "validation": 0.0, "test": False}
        section = {"train": 640, "test": 10}
        return lambda: measure("sentiment", params, section, fixed)["seconds_per_update"]

    compare("GRU, 64 reviews of 150 words a batch", "CPU seconds an update", plain, {
        "default": ours(),
        "time_major": ours(layout="time_major"),
        "time_major, matmul medium": ours(layout="time_major", matmul_precision="medium"),
        "cells": ours(kernel="cells"),
        "cells, time_major, matmul medium": ours(kernel="cells", layout="time_major", matmul_precision="medium"),
        "bf16, time_major": ours(precision="bf16", layout="time_major"),
        "cells, bf16, time_major": ours(precision="bf16", kernel="cells", layout="time_major"),
        "qrnn, time_major, matmul medium": ours(cell="qrnn", layout="time_major", matmul_precision="medium"),
    })  # fmt: skip


def features(images: int) -> None:
    from workers.workloads.feature_extraction import resnet

    def plain() -> float:
        torch.manual_seed(0)
        model, x = resnet.ResNet50().eval(), torch.randn(images, 3, 224, 224)
        begun = 0.0
        with torch.no_grad():
            for part in (x[:8], *x.split(8)):
                begun = begun or time.process_time() * (part is not None)
                model(part)
        return (time.process_time() - begun) * 1000 / (images + 8)

    def ours(**params: Any) -> Callable[[], float]:
        fixed = {"images": images, "passes": 1, "batch_size": 8, "transfer": False}

        def once() -> float:
            found = measure("feature_extraction", params, {}, fixed)
            if found["cosine"] < 0.999:
                print(f"  (cosine {found['cosine']:.5f} is below the tolerance: {params})")
            return found["seconds_per_1000_images"]

        return once

    import workers.workloads.feature_extraction as module

    module.time = CpuTime  # type: ignore[assignment]
    compare("ResNet-50 features, 3x224x224", "CPU seconds for 1,000 images", plain, {
        "default": ours(),
        "channels_last": ours(memory_format="channels_last"),
        "traced": ours(graph="traced"),
        "int8": ours(quantization="int8"),
        "bf16, folded, channels_last": ours(precision="bf16", fold_batch_norm=True, memory_format="channels_last"),
        "bf16, folded, channels_last, traced": ours(
            precision="bf16", fold_batch_norm=True, memory_format="channels_last", graph="traced"
        ),
    })  # fmt: skip


def graph(updates: int, folder: Path | None) -> None:
    """Edges a second of ComplEx with 1,000 shared negatives, against dense embeddings and dense Adagrad."""
    from workers.workloads.graph_embedding import data
    from workers.workloads.graph_embedding import trainer as module

    section = {"name": "triples", "dir": str(folder)} if folder else {"families": 1200}
    loaded = data.load(section)
    print(f"\n{len(loaded.entities)} entities, {len(loaded.train)} edges")
    edges = torch.from_numpy(loaded.train)

    def plain() -> float:
        dimension = 200
        parts = [nn.Embedding(n, dimension) for n in (len(loaded.entities),) * 2 + (2 * len(loaded.relations),) * 2]
        real, imaginary, r_real, r_imaginary = parts
        optimizer = torch.optim.Adagrad([p.weight for p in parts], lr=0.1)
        begun = 0.0
        for update in range(updates + 1):
            if update == 1:
                begun = time.process_time()
            h, r, t = edges[torch.randint(len(edges), (1000,))].unbind(1)
            negatives = torch.randint(len(loaded.entities), (1000,))
            optimizer.zero_grad()
            loss = torch.zeros(())
            for source, relation, target in ((h, r, t), (t, r + len(loaded.relations), h)):
                a, b, c, d = real(source), imaginary(source), r_real(relation), r_imaginary(relation)
                x, y = a * c - b * d, a * d + b * c
                positive = (x * real(target) + y * imaginary(target)).sum(1, keepdim=True)
                scores = x @ real(negatives).t() + y @ imaginary(negatives).t()
                zero = torch.zeros(len(source), dtype=torch.long)
                loss = loss + functional.cross_entropy(torch.cat([positive, scores], 1), zero)
            loss.backward()
            optimizer.step()
            loss.item()
        return (time.process_time() - begun) / updates / 1000 * 1e6

    def ours(**params: Any) -> Callable[[], float]:
        fixed = {"max_epochs": 1, "evaluate_epochs": 1, "evaluate_edges": 10, "test": False, "regularization": 0.0}

        def once() -> float:
            return 1e6 / measure("graph_embedding", params, section, fixed)["edges_per_second"]

        return once

    module.time = CpuTime  # type: ignore[assignment]
    compare("ComplEx of 400 numbers, 1,000 negatives", "CPU microseconds an edge", plain, {
        "default": ours(),
        "matmul highest": ours(matmul_precision="highest"),
        "bf16": ours(precision="bf16"),
        "bf16, 4 partitions": ours(precision="bf16", partitions=4),
        "bf16, one state a row": ours(precision="bf16", optimizer_state="row"),
    })  # fmt: skip


QUALITY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sentiment": ("imdb", {}),
    "image_classification": ("cifar10", {}),
    "graph_embedding": ("triples", {}),
}


def quality(name: str, folder: Path, settings: Mapping[str, Any], seed: int) -> None:
    """Trial 0, changed by settings, on real data; prints each report and the end."""
    kind = WORKLOADS.get(name)
    section = {"name": QUALITY[name][0], "dir": str(folder)}
    kind.check(section, settings)
    with tempfile.TemporaryDirectory() as place:
        one = Assignment("quality", 0, 1, {}, name, place, section, dict(settings), seed=seed)
        outcome = run(Context(one, lambda report: print(report.step, dict(report.metrics), flush=True)))
    print(json.dumps({"ending": outcome.ending, "message": outcome.message, "metrics": dict(outcome.metrics),
                      "peak_memory_bytes": outcome.peak_memory_bytes, "details": dict(outcome.details)}))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("which", nargs="*", default=["vgg", "gru", "features", "graph"])
    speed.add_argument("--updates", type=int, default=20)
    speed.add_argument("--graph", type=Path, help="folder of a real graph")
    real = commands.add_parser("quality")
    real.add_argument("workload", choices=list(QUALITY))
    real.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    real.add_argument("--data", type=Path, required=True)
    real.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "quality":
        pairs = [text.split("=", 1) for text in given.settings]
        quality(given.workload, given.data, {key: json.loads(value) for key, value in pairs}, given.seed)
        return
    limits.time = CpuTime  # type: ignore[assignment]
    jobs = {"vgg": lambda: vgg(given.updates), "gru": lambda: gru(given.updates), "features": lambda: features(24)}
    jobs["graph"] = lambda: graph(given.updates, given.graph)
    for which in given.which:
        jobs[which]()


if __name__ == "__main__":
    main()
