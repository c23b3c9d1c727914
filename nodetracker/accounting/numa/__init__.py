"""NUMA: what cells offer, whether guest cells fit them, and on which CPUs."""
