"""What is done to a fleet, the same for command line, REST and calls to agents.

Place claims and moves, read hosts and nodes, compare and heal placement, watch hosts:
functions over the ports, without rendering.
"""
