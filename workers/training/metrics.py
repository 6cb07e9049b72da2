"""The metrics that the trainer reports of every training, beside those of the workload."""

from typing import Final

from workers.protocol import Metric

TRAINING_METRICS: Final = (
    Metric("train_loss", "minimize"),
    Metric("seconds_per_update", "minimize", "speed"),
    Metric("items_per_second", "maximize", "speed"),
    Metric("train_seconds", None, "speed"),
    Metric("peak_memory_bytes", "minimize", "memory"),
    Metric("updates"),
    Metric("epoch"),
    Metric("learning_rate"),
    Metric("skipped_updates", "minimize"),
)
