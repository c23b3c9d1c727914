"""The shell of a process: signals, systemd, loops, deadlines, outages, clock, its services row."""
