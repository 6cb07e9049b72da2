"""The training loop of every workload that is trained by gradient descent."""
