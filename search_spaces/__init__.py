"""What may be tuned: parameters, conditions, constraints, knobs. Imports nothing else of this project."""
