"""What the workers of `alone` are forked from: all that they need is loaded already, as in `app.spark.daemon`."""

from app.spark.job import warm_up
from tests.chaos import work  # noqa: F401

warm_up()
