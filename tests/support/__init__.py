"""What tests share: waiting, servers' ports, and the service without Spark."""
