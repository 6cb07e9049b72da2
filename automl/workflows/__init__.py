"""What people do with a sweep besides running it: confirm, retrain, import, transfer, export."""
