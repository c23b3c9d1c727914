"""What clients are answered while members of a Galera cluster are killed, frozen and cut off.

Timeouts are Galera's own defaults.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.ha.galera import Galera, Member
from tests.ha.haproxy import HAProxy
from tests.ha.load import Samples, World, go_through
from tests.programs import wait_until

HEARTBEATS = 15
"""In the time of how many heartbeats of the first host all others have sent one, too."""


@pytest.fixture(scope="module")
def galera() -> Iterator[Galera]:
    cluster = Galera(provider_options="")
    with cluster.supervised():
        yield cluster
    cluster.remove()


@pytest.fixture(scope="module")
def haproxy(galera: Galera) -> Iterator[HAProxy]:
    server = HAProxy(galera.members)
    yield server
    server.remove()


@pytest.fixture(scope="module", params=["one member", "all members"])
def world(
    request: pytest.FixtureRequest,
    galera: Galera,
    haproxy: HAProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """Programs that write through HAProxy to one member, or each through a member of its own."""
    name = "nt_" + request.param.replace(" ", "_")
    urls = galera.create_database(name)
    if request.param == "one member":
        urls = [haproxy.url(urls[0], galera.members[0])]
    with World(tmp_path_factory.mktemp("world"), urls) as world:
        yield world
        world.stop()


@pytest.fixture(scope="module")
def samples(world: World) -> Samples:
    return Samples(world.url, ["SET SESSION wsrep_sync_wait = 1"])


def kill(members: list[Member]) -> Callable[[], object]:
    for member in members:
        member.process.cut_power()

    def mend() -> None:
        with ThreadPoolExecutor(len(members)) as pool:
            list(pool.map(lambda member: member.start(), members))

    return mend


def freeze(members: list[Member]) -> Callable[[], object]:
    for member in members:
        member.process.freeze()
    return lambda: [member.process.thaw() for member in members]


def cut_off(members: list[Member]) -> Callable[[], object]:
    for member in members:
        member.isolate(True)
    return lambda: [member.isolate(False) for member in members]


def lock(members: list[Member]) -> Callable[[], object]:
    connections = [member.lock() for member in members]
    return lambda: [connection.close() for connection in connections]


FAULTS: dict[str, tuple[Callable[[list[Member]], Callable[[], object]], int]] = {
    "killed": (kill, 1),
    "frozen": (freeze, 1),
    "cut off": (cut_off, 1),
    "locked for a backup": (lock, 1),
    "two of three killed": (kill, 2),
    "two of three frozen": (freeze, 2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_or_sold_twice_and_all_hosts_come_back(
    galera: Galera,
    world: World,
    samples: Samples,
    report: list[str],
    fault: str,
    request: pytest.FixtureRequest,
) -> None:
    break_it, count = FAULTS[fault]
    through = request.node.callspec.params["world"]
    members = galera.members
    if through == "one member":  # that which HAProxy leads to, whichever it is by now
        members = sorted(members, key=Member.count_connections, reverse=True)
    outcome = go_through(world, samples, fault, lambda: break_it(members[:count]))
    report.append(f"{through}, {outcome}")
    wait_until(galera.is_whole, 180)
    assert outcome.heartbeats <= HEARTBEATS
