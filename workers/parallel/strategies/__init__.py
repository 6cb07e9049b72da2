"""One parallelism strategy a file, found by its name."""
