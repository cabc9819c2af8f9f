"""Where test processes are forked from: a process that has everything loaded, like Spark's daemon."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.preloaded"])
