"""Peak memory of a rank: measured, and estimated before it is dispatched."""
