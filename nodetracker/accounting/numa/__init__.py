"""NUMA: usage of host cells, and assignment of guest cells and their CPUs."""
