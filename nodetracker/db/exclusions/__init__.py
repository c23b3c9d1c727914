"""Count the nodes that each check excludes, and find the nearest one."""
