"""Peak memory of a trial, estimated before the trial is dispatched."""
