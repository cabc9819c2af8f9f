"""One source partition inside a task: its states, the ledger that they share, and the lane as the task sees it."""
