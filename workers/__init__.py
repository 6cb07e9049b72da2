"""How one trial is run: workloads, training, parallel strategies, memory, Ray actors."""
