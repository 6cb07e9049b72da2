"""Shows and uses sweeps in other tools: Optuna, Ax, TensorBoard, MLflow, Prometheus."""
