"""What ``connection_uris`` names: hypervisors by URI, each with a name of its own if it has one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,255})=(?P<uri>[A-Za-z][A-Za-z0-9+.-]*:.*)")
_PASSWORD = re.compile(r"(?<=:)[^:@/]*(?=@)")


@dataclass(frozen=True, slots=True)
class HypervisorEndpoint:
    """One entry of ``connection_uris``.

    Attributes:
        uri: as libvirt takes it.
        name: what its node is called, None = the hypervisor's own hostname.
    """

    uri: str
    name: str | None = None

    @property
    def is_local(self) -> bool:
        """True when it is a hypervisor of this machine: its URI names no server."""
        return urlsplit(self.uri).hostname is None

    @property
    def source(self) -> str:
        """Return what facts and log lines call it; never a password."""
        return _PASSWORD.sub("***", self.uri)


def parse_endpoints(entries: Sequence[str]) -> tuple[HypervisorEndpoint, ...]:
    """Read the entries of ``connection_uris``, each ``[name=]URI``.

    Raises:
        ValueError: an entry is no URI, two are alike, or two have one name;
            the message names both.

    >>> parse_endpoints(["qemu:///system", "rack2=qemu+ssh://root@kvm-2/system"])[1].name
    'rack2'
    """
    endpoints: list[HypervisorEndpoint] = []
    for entry in entries:
        text = entry.strip()
        match = _NAMED.fullmatch(text)
        endpoint = HypervisorEndpoint(match["uri"], match["name"]) if match else None
        if endpoint is None and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:.*", text):
            endpoint = HypervisorEndpoint(text)
        if endpoint is None:
            raise ValueError(f"{text!r} is neither a URI nor name=URI")
        for other in endpoints:
            _check_distinct(other, endpoint)
        endpoints.append(endpoint)
    if not endpoints:
        raise ValueError("names no hypervisor")
    return tuple(endpoints)


def _check_distinct(one: HypervisorEndpoint, other: HypervisorEndpoint) -> None:
    if one.name is not None and one.name == other.name:
        raise ValueError(f"{one.source} and {other.source} are both called {one.name}")
    if one.uri == other.uri and one.name is other.name is None:
        raise ValueError(f"{one.source} stands twice; name=URI tells two nodes apart")
