"""``limits``: what a project uses; nodetracker has no quotas, so every maximum is -1."""

import math

from nodetracker.api.call import Answer, Call
from nodetracker.api.family import Version
from nodetracker.api.policies import FLEET_READER
from nodetracker.model.errors import ForbiddenError
from nodetracker.model.guest import WorkloadKind
from nodetracker.model.units import MILLI

_MAXIMA = (
    "maxTotalInstances", "maxTotalCores", "maxTotalRAMSize", "maxTotalKeypairs", "maxServerMeta",
    "maxServerGroups", "maxServerGroupMembers",
)  # fmt: skip
_UNTIL: dict[Version, tuple[str, ...]] = {
    Version(2, 35): (
        "maxTotalFloatingIps", "maxSecurityGroups", "maxSecurityGroupRules",
    ),
    Version(2, 38): ("maxImageMeta",),
    Version(2, 56): ("maxPersonality", "maxPersonalitySize"),
}  # fmt: skip
"""The last microversion that has them -> further maxima."""

_NETWORK_USED = ("totalFloatingIpsUsed", "totalSecurityGroupsUsed")  # with the first of these
_UNLIMITED = -1


def show_limits(call: Call) -> Answer:
    """Show what the user's project uses; fleet readers may name another project."""
    identity = call.context.identity
    assert identity is not None, "the operation is not open"
    project = call.query.get("tenant_id", identity.project_id)
    if project != identity.project_id and not call.is_allowed(FLEET_READER):
        raise ForbiddenError("Policy does not allow showing the limits of another project.")
    sums = [] if project is None else call.store.sum_usage(project_id=project)
    instances = [item for item in sums if item.kind is WorkloadKind.INSTANCE]
    absolute = dict.fromkeys(_MAXIMA, _UNLIMITED) | {
        "totalInstancesUsed": sum(item.workloads for item in instances),
        "totalCoresUsed": math.ceil(
            sum(item.vcpu_milli + item.pcpus * MILLI for item in instances) / MILLI
        ),
        "totalRAMUsed": sum(item.memory_mb for item in instances),
        "totalServerGroupsUsed": 0,
    }
    for last, names in _UNTIL.items():
        if call.version <= last:
            absolute |= dict.fromkeys(names, _UNLIMITED)
    if call.version <= min(_UNTIL):
        absolute |= dict.fromkeys(_NETWORK_USED, 0)
    return Answer({"limits": {"rate": [], "absolute": absolute}})
