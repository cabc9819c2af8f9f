"""The imports of the process from which services and workers are forked: all they need, as in `app.spark.daemon`."""

from app.spark.job import warm_up
from tests.chaos import work  # noqa: F401
from tests.support import forked  # noqa: F401

warm_up()
