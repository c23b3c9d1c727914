"""The shell of a process: signals, systemd, loops, threads with deadlines, outages, the clock."""
