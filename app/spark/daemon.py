"""What Spark forks Python workers from: pyspark's own daemon, with the slow imports done before the first fork."""

from pyspark import daemon

# Loading code is safe before a fork; clients and threads are made in the task, after it.
from app.spark import job

if __name__ == "__main__":
    job.warm_up()
    daemon.manager()
