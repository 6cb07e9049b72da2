"""How one trial is run: workloads, training, strategies, memory. Part of automl-sweep."""
