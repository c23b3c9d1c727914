"""Dumps that are taken under load, and loaded under agents that run: nothing is lost unnamed."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.functional.restores import DIRECT, REMOTE, SECOND, Claimer, Restores, Told
from tests.functional.servers.mariadb import MariaDB
from tests.functional.servers.postgresql import PostgreSQL
from tests.programs import wait_until

HALF_A_HEARTBEAT, AN_INTERVAL, A_MINUTE, A_DAY = 0.5, 1.0, 60.0, 86400.0


def restore_at_once(restores: Restores) -> None:
    """Restore what was dumped half a heartbeat before, while claims went on."""
    with ExitStack() as stack:
        claimers = start_claimers(restores, stack)
        began = time.monotonic()
        dump = restores.dump(0)
        ended = time.monotonic()
        time.sleep(HALF_A_HEARTBEAT)
        told = stop(claimers)
    restores.load(dump)
    restores.settle()
    check_claims(restores, told, began, ended)
    assert restores.reconcile() == set()
    restores.check()


def restore_after_changes(restores: Restores, seconds: float) -> None:
    """Restore what was dumped before a host was renamed, a node deleted and guests moved."""
    machines, direct, second, remote = restores.machines, *map(restores.lasting, restores.machines)
    gone = f"gone-{seconds:g}"
    machines[SECOND].guests[gone] = {}
    machines[SECOND].write()
    restores.settle()
    restores.add_guest(REMOTE, remote)
    released = restores.add_guest(DIRECT, direct)
    moved, moving = (restores.add_guest(SECOND, second) for _ in range(2))
    orphan = restores.add_guest(SECOND, gone)
    migration = restores.move(moving, DIRECT)
    with ExitStack() as stack:
        claimers = start_claimers(restores, stack)
        began = time.monotonic()
        dump = restores.dump(seconds)
        ended = time.monotonic()

        restores.stop_guest(DIRECT, direct, released.workload.uuid)
        restores.store.abort_claim(released.uuid)
        for claim, found in ((moved, restores.move(moved, DIRECT)), (moving, migration)):
            restores.start_guest(DIRECT, direct, claim.workload.uuid)
            restores.stop_guest(SECOND, second, claim.workload.uuid)
            restores.store.confirm_migration(found)
        added = restores.add_guest(REMOTE, remote)
        restores.store.abort_claim(orphan.uuid)
        del machines[SECOND].guests[gone]
        machines[SECOND].write()
        restores.rename(REMOTE)
        wait_until(lambda: gone not in {node.nodename for node in restores.store.list_nodes()})
        told = stop(claimers)
    restores.load(dump)
    restores.settle()
    restores.store.confirm_migration(migration)
    check_claims(restores, told, began, ended)
    assert restores.reconcile() == {
        ("missing_guest", direct, released.workload.uuid, "released"),
        ("missing_guest", second, moved.workload.uuid, "released"),
        ("unclaimed_guest", direct, moved.workload.uuid, "adopted"),
        ("unclaimed_guest", remote, added.workload.uuid, "adopted"),
        ("orphan_node", gone, orphan.workload.uuid, "released"),
    }
    wait_until(lambda: gone not in {node.nodename for node in restores.store.list_nodes()})
    restores.check()


def start_claimers(restores: Restores, stack: ExitStack) -> list[Claimer]:
    hosts = {restores.machines[key].host: restores.lasting(key) for key in (DIRECT, SECOND)}
    claimers = [Claimer(restores.connection, hosts, seed) for seed in (1, 2)]
    for claimer in claimers:
        stack.enter_context(claimer)
    wait_until(lambda: all(any(t.ended for t in claimer.told.values()) for claimer in claimers))
    return claimers


def stop(claimers: list[Claimer]) -> dict[str, Told]:
    """Stop claimers, as an operator does before a restore; return what they were answered."""
    for claimer in claimers:
        claimer.stop()
    return {uuid: told for claimer in claimers for uuid, told in claimer.told.items()}


def check_claims(restores: Restores, told: dict[str, Told], began: float, ended: float) -> None:
    """Assert that claims are as they were during the dump, but for those that expired since."""
    states = {
        claim.uuid: (claim.state.value, claim.reason) for claim in restores.store.list_claims()
    }
    compared = 0
    for uuid, claim in told.items():
        if claim.granted[0] > ended:
            assert uuid not in states
        elif claim.granted[1] < began and claim.ended is not None and claim.ended[1] < began:
            assert states[uuid] == ("released", "aborted")
        elif claim.granted[1] < began and (claim.ended is None or claim.ended[0] > ended):
            assert states[uuid] in (("held", ""), ("released", "expired"))
        else:
            continue
        compared += 1
    assert compared


def run(restores: Restores, ages: Sequence[float]) -> None:
    with restores.running():
        restores.settle()
        restore_at_once(restores)
        for seconds in ages:
            restore_after_changes(restores, seconds)


@pytest.mark.timeout(300)
def test_a_dump_of_a_moment_ago_or_of_yesterday_is_restored_under_agents(
    tmp_path: Path, mariadb: MariaDB, postgresql: PostgreSQL
) -> None:
    """On both databases at the same time, as most of it is waiting."""
    fleets = [
        Restores(tmp_path / server.name, server, "nt_restore") for server in (mariadb, postgresql)
    ]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, fleet, (A_DAY,)) for fleet in fleets]:
            done.result()
