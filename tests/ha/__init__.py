"""Real clusters, run by tox -e ha."""
