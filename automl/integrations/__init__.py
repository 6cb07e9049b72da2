"""Training libraries, and sweeps in other tools: Optuna and Ax."""
