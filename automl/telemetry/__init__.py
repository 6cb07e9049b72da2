"""What operators see of a running sweep: metrics for Prometheus, log lines as JSON."""
