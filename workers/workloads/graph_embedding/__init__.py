"""Embeddings of large graphs, in partitions that need not fit into memory together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from search_spaces import Choice, Float, Parameter, UsageError
from search_spaces.hardware import Hardware
from workers.context import Context
from workers.protocol import Metric
from workers.workloads._declarative_workload import DeclarativeWorkload, Options

__all__ = ["GraphEmbedding"]

_PARTITIONS = (1, 2, 4, 8, 16, 32)


class GraphEmbedding(DeclarativeWorkload):
    """Link prediction after PyTorch-BigGraph (Lerer et al. 2019, arXiv:1903.12287).

    Only two partitions of the entity vectors are in memory at a time. A batch of edges shares its
    negatives, only touched rows have gradients, and the optimizer is Adagrad. Trial 0 is ComplEx
    with the nuclear 3-norm; opposite directions have relations of their own (Lacroix et al. 2018,
    arXiv:1806.07297). Ranks are filtered; ties get their mean rank.
    """

    name = "graph_embedding"
    summary = (
        "link prediction by TransE, DistMult, ComplEx or RotatE "
        "(FB15k-237, WN18RR, any triples, or generated)"
    )
    goals = ("maximize mrr",)
    metrics = (
        *(
            Metric(f"{split}{name}", "maximize")
            for split in ("", "test_")
            for name in ("mrr", "hits@1", "hits@3", "hits@10")
        ),
        Metric("train_loss", "minimize"),
        Metric("edges_per_second", "maximize", "speed"),
        Metric("train_seconds", None, "speed"),
        Metric("table_bytes", "minimize", "memory"),
        Metric("epoch"),
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "max_epochs": 10,
        "evaluate_epochs": 5,
        "evaluate_edges": 0,
        "checkpoint_seconds": 60.0,
        "test": True,
        "model": "complex",
        "dimension": 400,
        "batch_size": 1000,
        "negatives": 1000,
        "learning_rate": 0.1,
        "regularization": 0.05,
        "initial_scale": 0.01,
        "partitions": 1,
        "precision": "fp32",
        "matmul_precision": "medium",
    }
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {"families": 3},
        "fixed": {
            "max_epochs": 2,
            "evaluate_epochs": 1,
            "dimension": 8,
            "batch_size": 64,
            "negatives": 20,
        },
    }

    @classmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """See `DeclarativeWorkload`."""
        quality = {"quality"}
        return [
            Choice("model", ["transe", "distmult", "complex", "rotate"], default="complex"),
            Choice("dimension", [32, 64, 100, 200, 400], ordered=True, default=400),
            Choice("batch_size", [500, 1000, 2000, 4000], ordered=True, default=1000),
            Choice("negatives", [100, 250, 500, 1000, 2000], ordered=True, default=1000),
            Float("learning_rate", 0.005, 1.0, log=True, default=0.1, affects=quality),
            Float("regularization", 1e-4, 0.5, log=True, default=0.05, affects=quality),
            Float("initial_scale", 1e-3, 0.3, log=True, default=0.01, affects=quality),
            Choice("partitions", [1, 2, 4, 8, 16], ordered=True, default=1),
        ]

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """See `DeclarativeWorkload`."""
        return {
            "precision": {"precision": ["fp32", "bf16"]},
            "runtime": {"tune": ["matmul_precision"]},
        }

    @classmethod
    def check(cls, data: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
        """See `Workload`."""
        super().check(data, fixed)
        if fixed.get("partitions", 1) not in _PARTITIONS:
            raise UsageError(
                f"partitions is one of {', '.join(map(str, _PARTITIONS))}, "
                f"got {fixed['partitions']!r}"
            )
        if fixed.get("dimension", 2) % 2:
            raise UsageError(
                "dimension must be even, because a complex number takes two; "
                f"got {fixed['dimension']!r}"
            )

    def run(self, context: Context) -> Mapping[str, float]:
        """Train; report every `evaluate_epochs`; return the last metrics, with the test metrics."""
        import torch

        from workers.device.precision import matmul_precision

        from .trainer import EmbeddingTrainer, TrainOptions

        self.read(context)
        dtype = torch.bfloat16 if self.option("precision") == "bf16" else torch.float32
        options = self.options(TrainOptions, dtype=dtype)
        with matmul_precision("fp32", str(self.option("matmul_precision")), context.device):
            return EmbeddingTrainer(context, self.dataset(), options).run()

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write vectors of entities and relations, and their names."""
        from safetensors.torch import load_file, save_file

        from .partitions import Partitioning
        from .tables import load_checkpoint, read_entities

        found = load_checkpoint(trial)
        if found is None:
            raise UsageError(f"{trial} has no checkpoint to export; train it first")
        path, graph = found[0], self.dataset()
        partitioning = Partitioning.random(
            len(graph.entities), self.option("partitions"), self.seed
        )
        entities = read_entities(path, partitioning, self.option("dimension"))
        relations = load_file(path / "relations.safetensors")["relations"]
        save_file({"entities": entities, "relations": relations}, target / "model.safetensors")
        (target / "entities.txt").write_text("\n".join(graph.entities) + "\n")
        (target / "relations.txt").write_text("\n".join(graph.relations) + "\n")
        return {
            "model.safetensors": "vectors of entities and relations, reciprocal relations last",
            "entities.txt": "names of the entities, in the order of their vectors",
            "relations.txt": "names of the relations, in the order of their vectors",
        }
