"""The preloaded module that `alone` forks workers from; everything they need is imported, as in `app.spark.daemon`."""

from app.spark.job import warm_up
from tests.chaos import work  # noqa: F401

warm_up()
