"""The only importer of pyspark: starts the session and runs a round as a job."""
