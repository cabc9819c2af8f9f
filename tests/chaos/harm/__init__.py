"""
The harm that the nemesis can do, by theme.

A fault is a context manager: entering it does the harm and yields the target; leaving it repairs the harm. A fault
that needs no repair (Spark replaces a killed worker) ends at once.
"""
