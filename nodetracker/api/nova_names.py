"""Translate names between Nova and nodetracker."""

from nodetracker.model.service import COMPUTE_BINARY, CONDUCTOR_BINARY

API_BINARY = "nodetracker-api"

NOVA_BINARIES = {
    COMPUTE_BINARY: "nova-compute",
    CONDUCTOR_BINARY: "nova-conductor",
    API_BINARY: "nova-api",
}
"""nodetracker's binaries -> the names that Nova's clients know."""

OWN_BINARIES = {nova: own for own, nova in NOVA_BINARIES.items()}
