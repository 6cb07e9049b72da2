"""One device: number formats, peak memory and profiles; imports no workload."""
