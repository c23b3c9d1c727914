"""OpenStack's own clients and tests against `nodetracker-api`; run by tox -e clients and -e tempest."""
