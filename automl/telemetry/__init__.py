"""What operators see of a running sweep: metrics of Ray."""
