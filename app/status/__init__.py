"""What the service knows of itself: one frozen snapshot, and what is made of it. The log is a function of it."""
