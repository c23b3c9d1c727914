"""Parse ``connection_uris``: hypervisors by URI, each with an optional node name."""

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
        uri: libvirt's connection URI.
        name: the node's name, None = the hypervisor's hostname.
    """

    uri: str
    name: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the hypervisor is on this machine: its URI has no hostname."""
        return urlsplit(self.uri).hostname is None

    @property
    def source(self) -> str:
        """Return the URI for facts and log lines, without a password."""
        return _PASSWORD.sub("***", self.uri)


def parse_endpoints(entries: Sequence[str]) -> tuple[HypervisorEndpoint, ...]:
    """Parse the entries of ``connection_uris``, each ``[name=]URI``.

    Raises:
        ValueError: an entry is not valid, or two have the same URI or name;
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
            raise ValueError(f"invalid value {text!r}: expected URI or name=URI")
        for other in endpoints:
            _check_distinct(other, endpoint)
        endpoints.append(endpoint)
    if not endpoints:
        raise ValueError("at least one URI is required")
    return tuple(endpoints)


def _check_distinct(one: HypervisorEndpoint, other: HypervisorEndpoint) -> None:
    if one.name is not None and one.name == other.name:
        raise ValueError(f"duplicate name {one.name!r} of {one.source} and {other.source}")
    if one.uri == other.uri and one.name is other.name is None:
        raise ValueError(f"duplicate URI {one.source}; use name=URI to give the nodes names")
