"""The agent, but at its door a question waits longer for what makes room, on a busy machine."""

from nodetracker.cmd import compute
from nodetracker.compute import door
from nodetracker.rpc import door_socket

SECONDS = 20.0


def main() -> int:
    """Run the agent."""
    door.LISTING_SECONDS = door_socket.EARLIER_SECONDS = SECONDS
    code: int = compute.main()
    return code
