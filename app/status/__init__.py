"""The service's state as one frozen snapshot, and its functions: log, metrics, health checks and status page."""
