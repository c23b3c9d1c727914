"""All hosts: read and watch them, place claims on them, keep rows of processes without nodes."""
