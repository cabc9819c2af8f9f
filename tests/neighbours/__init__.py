"""Programs that our users run beside the service, with environments of their own: `make neighbours` tests them."""
