"""NUMA: usage of host cells, and placement of guest cells and their CPUs."""
