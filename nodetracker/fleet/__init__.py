"""Watch all hosts, and keep the services rows of processes without nodes."""
