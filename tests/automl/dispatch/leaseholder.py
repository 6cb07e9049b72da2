"""A program that leases four cores and is then killed."""

HOLD = """
import sys, time
from pathlib import Path
from automl.dispatch.leases import LeaseFolder, MachineLeases
leases = MachineLeases("killed", 1, 4, folder=LeaseFolder(Path(sys.argv[1])), num_cores=4)
assert all(leases.take(trial, 1) for trial in range(4))
print("held", flush=True)
time.sleep(60)
"""
