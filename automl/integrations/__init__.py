"""Sweeps in other tools: Optuna, Ax, TensorBoard, MLflow, Prometheus."""
