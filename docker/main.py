"""The main application file of a SparkApplication: the `winnow` command, started by Spark instead of by a shell."""

from app.cli import main

main()
