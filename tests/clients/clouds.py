"""The node that clients ask for, and microversions."""

from tests.clients.fleet import NODES

VERSIONS = ("2.1", "2.42", "2.53", "2.69", "2.75", "2.87", "2.88", "2.96")
NAMES = [node["nodename"] for nodes in NODES.values() for node in nodes]
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
