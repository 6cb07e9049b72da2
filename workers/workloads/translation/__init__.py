"""The translation workload."""
