"""One device: number formats, peak memory, profiles; knows no workload."""
