"""Starts sweeps on other systems: a batch job of Slurm."""
