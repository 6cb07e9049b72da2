"""The report and the terminal output of sweeps."""
