"""Work around a sweep: confirm, retrain, import trials, transfer, export, examine the machine."""
