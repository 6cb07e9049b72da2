"""What a candidate is worth: terms that add up in log space."""
