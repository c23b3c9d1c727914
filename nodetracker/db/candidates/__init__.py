"""Find the candidates for a claim among all nodes, by one statement."""
