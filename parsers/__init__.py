"""
Parsers turn raw lines into cleansed lines and rejects. They are pure: they import nothing of app, Spark or Kafka.

To use one, read `registry` and `idc_access_log` or `delimited`; to write one, read `contract` and `testing`. `flume`
opens Flume's envelope, `compiled` holds the kernels, and `proposals` finds a parser for unknown lines.
"""
