"""The process that Spark forks Python workers from: pyspark's own daemon, with slow imports done before the fork."""

from pyspark import daemon

# Loading code is safe before a fork. Clients and threads are created in the task, after the fork.
from app.spark import job

if __name__ == "__main__":
    job.warm_up()
    daemon.manager()
