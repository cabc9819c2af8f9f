"""The only importer of pyspark: starts the session, runs a round as a job. Thin and stateless."""
