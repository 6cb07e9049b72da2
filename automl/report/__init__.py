"""The report, the live dashboard and the terminal output of sweeps."""
