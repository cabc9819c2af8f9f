"""The command line, as `python -m app.cli`."""

from app.cli import main

main(prog_name="winnow")
