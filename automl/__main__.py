"""`python -m automl` is the program `automl`."""

from automl.cli import cli

if __name__ == "__main__":
    cli(prog_name="automl")
