"""Where processes of the tests are forked from: one that has everything loaded, as Spark's daemon has."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.preloaded"])
