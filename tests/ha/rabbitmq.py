"""A cluster of real RabbitMQ brokers."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.functional.servers.process import is_listening, removed_on_failure
from tests.functional.servers.rabbitmq import RabbitMQ
from tests.programs import wait_until

_SETTINGS = ("cluster_partition_handling = pause_minority",)


class RabbitCluster:
    """Brokers that share users and queues; those in a minority pause."""

    def __init__(self, size: int = 3) -> None:
        self.members: list[RabbitMQ] = []
        with removed_on_failure(self):
            self.members.append(RabbitMQ(settings=_SETTINGS))
            for _ in range(size - 1):
                member = RabbitMQ(settings=_SETTINGS, sibling=self.members[0])
                self.members.append(member)
                member.evaluate(
                    "rabbit:stop(), "
                    f"ok = rabbit_mnesia:join_cluster('{self.members[0].node}', disc), "
                    "rabbit:start()"
                )

    @property
    def url(self) -> str:
        """The URL of all members for ``[DEFAULT] transport_url``."""
        places = [member.url.removeprefix("rabbit://").rstrip("/") for member in self.members]
        return f"rabbit://{','.join(places)}/"

    def kill(self, members: Sequence[RabbitMQ]) -> None:
        """Kill members, as a power cut would."""
        for member in members:
            member.kill()

    def start(self, members: Sequence[RabbitMQ]) -> None:
        """Start members again, at once, as one may wait for another."""
        with ThreadPoolExecutor(len(members)) as pool:
            list(pool.map(lambda member: member.start(), members))

    def set_apart(self, member: RabbitMQ, is_apart: bool) -> None:
        """Cut a member's connections to the others, so that it pauses, or let it connect again."""
        for one, other in [(member, each) for each in self.members if each is not member]:
            for here, there in ((one, other), (other, one)):
                cookie = f"'not {there.node}'" if is_apart else "erlang:get_cookie()"
                here.evaluate(
                    f"erlang:set_cookie('{there.node}', {cookie}), "
                    f"erlang:disconnect_node('{there.node}')"
                )
        wait_until(lambda: is_listening(member.process.port) is not is_apart)

    def remove(self) -> None:
        """Stop all members and delete their files."""
        for member in reversed(self.members):
            member.remove()
