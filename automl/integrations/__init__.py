"""Training libraries, and sweeps in Optuna."""
