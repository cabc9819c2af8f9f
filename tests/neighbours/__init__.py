"""Programs that users run next to the service, each in its own environment: `make neighbours` tests them."""
