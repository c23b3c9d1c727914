"""Find out how much a Ceph pool can store, as libvirt reports its whole cluster's raw space."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodetracker.model.errors import HostDataError
from nodetracker.model.host import HostProblem, StorageInfo
from nodetracker.model.units import capacity_mib_from_bytes, usage_mib_from_bytes
from nodetracker.virt.host.command import run_command
from nodetracker.virt.libvirt.xml import MAX_NUMBER


@dataclass(frozen=True, slots=True)
class CephSettings:
    """How the usable size of a Ceph pool is found.

    Attributes:
        conf: the cluster's configuration file for ``ceph df``, "" = it is not asked.
        user: its user, "" = that of the file.
        replicas: number of copies of each object, by which raw sizes are divided; 0 = unknown.
    """

    conf: str = ""
    user: str = ""
    replicas: int = 0


def measure_usable(
    storage: StorageInfo,
    pool: str,
    settings: CephSettings,
    run: Callable[[Sequence[str]], str] = run_command,
) -> StorageInfo:
    """Return a Ceph pool's storage with the amounts that guests' images can use.

    The amounts are the pool's as ``ceph df`` reports them, else the cluster's divided by the
    number of copies, else the cluster's with a problem that names the options.

    Args:
        storage: as libvirt reports it: raw amounts of the whole cluster.
        pool: name of the Ceph pool.

    Raises:
        HostDataError: the cluster did not answer, or does not have the pool; the fact is held.
    """
    instances = storage.instances
    if settings.conf:
        command = ["ceph", "df", "--format", "json", "--conf", settings.conf]
        command += ["--id", settings.user] if settings.user else []
        used, available = parse_ceph_df(run(command), pool)
        measured = replace(
            instances,
            total_mb=capacity_mib_from_bytes(used + available),
            used_mb=usage_mib_from_bytes(used),
            available_mb=capacity_mib_from_bytes(available),
        )
        return replace(storage, instances=measured)
    if settings.replicas:
        divided = replace(
            instances,
            total_mb=instances.total_mb // settings.replicas,
            used_mb=-(-instances.used_mb // settings.replicas),
            available_mb=instances.available_mb // settings.replicas,
        )
        return replace(storage, instances=divided)
    problem = HostProblem(
        f"pool {instances.device}",
        "its size is the raw size of the Ceph cluster, of which copies use a part: set "
        "[libvirt] images_rbd_ceph_conf, or rbd_replicas",
    )
    return replace(storage, problems=(*storage.problems, problem))


def parse_ceph_df(text: str, pool: str) -> tuple[int, int]:
    """Return the bytes that a pool's objects use, without copies, and how many more fit.

    Raises:
        HostDataError: the text is not an answer of ``ceph df``, or lacks the pool.

    Source: Ceph's ``ceph df --format json``. ``stored`` exists since Nautilus; ``bytes_used``,
    which includes copies there, had its meaning before.

    >>> parse_ceph_df('{"pools": [{"name": "vms", "stats": {"stored": 1, "max_avail": 2}}]}', "vms")
    (1, 2)
    """
    source = "ceph df"
    try:
        pools: list[Any] = json.loads(text)["pools"]
        stats = next((item["stats"] for item in pools if item["name"] == pool), None)
        if stats is None:
            raise HostDataError(source, f"has no pool {pool}")
        used, available = stats.get("stored", stats.get("bytes_used")), stats["max_avail"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HostDataError(source, "is not an answer with pools and their stats") from error
    amounts = [used, available]
    if not all(type(value) in (int, float) and 0 <= value <= MAX_NUMBER for value in amounts):
        raise HostDataError(source, f"has no amounts of pool {pool}")
    return int(used), int(available)
