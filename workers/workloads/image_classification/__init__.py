"""Classification of small images by a VGG-style convolutional network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from search_spaces import Choice, Float, Parameter
from search_spaces.hardware import Hardware
from workers.batches import Batch
from workers.workload import ParallelPlan
from workers.workloads._classifier import SCHEDULES, Classifier
from workers.workloads._declarative_workload import IntArray, Options

if TYPE_CHECKING:
    import torch

__all__ = ["ImageClassification"]


class ImageClassification(Classifier):
    """A VGG-style network on CIFAR-10, folders of images, or generated images.

    Trial 0 is the published setting of the comparison of deep-learning frameworks
    (https://github.com/ilkarman/DeepLearningFrameworks): 10 epochs, batches of 64, SGD at 0.01 with
    momentum 0.9, no augmentation; about 77% test accuracy on the full CIFAR-10.

    `fixed.gradient_penalty` weights an additional loss: the squared norm of the loss's gradient
    with respect to the image (double backpropagation, Drucker and LeCun 1992). It is trained
    through second-order gradients.
    """

    name = "image_classification"
    summary = "images by a VGG-style network (CIFAR-10, folders of images, or generated)"
    goals = ("maximize accuracy",)
    defaults: ClassVar[Mapping[str, Any]] = {
        **Classifier.defaults,
        "max_epochs": 10,
        "batch_size": 64,
        "optimizer": "sgd",
        "learning_rate": 0.01,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "filters": 50,
        "dense_units": 512,
        "dropout": 0.25,
        "dense_dropout": 0.5,
        "batch_norm": False,
        "augmentation": "none",
        "gradient_penalty": 0.0,
    }
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {"train": 120, "test": 40},
        "fixed": {"max_epochs": 2, "filters": 4, "dense_units": 16},
    }

    reads: ClassVar[tuple[str, ...]] = ("checkpoint_every", "compile_scope")
    # Batch norm uses the rows of one rank at a time, so dividing the batch changes the function.
    # The layer norm that comes with it needs all dense units.
    constraints: ClassVar[tuple[str, ...]] = (
        "not batch_norm or parallelism == 'single'",
        "not batch_norm or accumulation == 1",
    )

    @classmethod
    def own(cls, hardware: Hardware) -> Sequence[Parameter]:
        """See `DeclarativeWorkload`."""
        from .data import AUGMENTATIONS

        quality = {"quality"}
        return [
            Float("learning_rate", 1e-3, 0.3, log=True, default=0.01, affects=quality),
            Float("momentum", 0.5, 0.99, default=0.9, affects=quality),
            Float("weight_decay", 0.0, 5e-3, default=0.0, affects=quality),
            Choice("rate_schedule", list(SCHEDULES), default="constant", affects=quality),
            Choice("filters", [16, 32, 50, 64], ordered=True, default=50),
            Choice("dense_units", [128, 256, 512], ordered=True, default=512),
            Choice("batch_norm", [False, True], default=False),
            Float("dropout", 0.0, 0.6, default=0.25, affects=quality),
            Float("dense_dropout", 0.0, 0.8, default=0.5, affects=quality),
            Float("label_smoothing", 0.0, 0.2, default=0.0, affects=quality),
            Choice("augmentation", list(AUGMENTATIONS), default="none", affects=quality),
        ]

    @classmethod
    def knobs(cls, hardware: Hardware) -> Options:
        """See `DeclarativeWorkload`."""
        runtime = ("matmul_precision", "compile", "memory_format")
        return {
            "precision": {},
            "batch": {"unit": "items"},
            "parallelism": {
                "plan": ("layers", "tensor", "stages"),
                "values": {"num_layers": 3, "num_heads": 0},
            },
            "runtime": {"tune": [*runtime, "loader_workers", "prefetch"]},
        }

    def build_model(self) -> torch.nn.Module:
        """See `Trainable`."""
        import torch

        from .model import ImageModel, ImageModelOptions

        torch.manual_seed(self.seed)
        dataset = self.dataset()
        options = self.options(
            ImageModelOptions,
            num_classes=len(dataset.classes),
            size=dataset.train.pixels.shape[-1],
        )
        return ImageModel(options)

    def plan(self, model: torch.nn.Module) -> ParallelPlan:
        """The dense layers are split over ranks; blocks and head are stages."""
        return ParallelPlan(
            layers=("block1", "block2", "head"),
            tensor={"head.dense": "column", "head.output": "row"},
            stages="workers.workloads.image_classification.model:stages",
        )

    def export(self, trial: Path, target: Path) -> Mapping[str, str]:
        """Write the weights, the model as ONNX, and the names of the classes, one per line."""
        (target / "classes.txt").write_text("\n".join(self.dataset().classes) + "\n")
        return {
            **super().export(trial, target),
            "classes.txt": "the classes, in the order of the logits",
        }

    def examples_part(
        self, split: str, rows: IntArray, rng_seed: tuple[int, int] | None, part: slice
    ) -> Batch:
        """`images` (b, 3, size, size) of uint8 and `label` (b,)."""
        import torch

        from .data import augment

        images = self.examples_of(split)
        mine = rows[part]
        pixels = images.pixels[mine]
        if rng_seed is not None:
            rng = np.random.default_rng([self.seed, *rng_seed])
            pixels = augment(pixels, self.option("augmentation"), rng, len(rows), part)
        return {
            "images": torch.from_numpy(np.ascontiguousarray(pixels)),
            "label": torch.from_numpy(images.labels[mine]),
        }

    def inputs(self, batch: Batch) -> tuple[torch.Tensor, ...]:
        """Pixels from -1 to 1, in the configured memory format."""
        import torch

        from .model import scaled

        images = scaled(batch["images"])
        if {**self.fixed, **self.params}.get("memory_format") == "channels_last":
            images = images.contiguous(memory_format=torch.channels_last)
        return (images,)

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Cross entropy, plus the gradient penalty if it is on."""
        penalty = float(self.option("gradient_penalty"))
        if not penalty:
            return super().loss(model, batch)
        import torch

        (images,) = self.inputs(batch)
        images.requires_grad_()
        loss = self.criterion(model(images), batch)
        (slope,) = torch.autograd.grad(loss, images, create_graph=True)
        return loss + penalty * slope.to(loss.dtype).square().sum()
