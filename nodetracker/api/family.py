"""Families of resources: each path belongs to one, which decides the form of its answers.

Those of Nova and Zun have microversions.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

import falcon
import microversion_parse
from microversion_parse import Version

NOVA_BASE = "/v2.1"
ZUN_BASE = "/container"
OWN_BASE = "/v1"
PAGE_BASE = "/ui"


class Family(enum.Enum):
    """Families of resources."""

    NOVA = "nova"
    ZUN = "zun"
    OWN = "own"
    PAGE = "page"
    ROOT = "root"  # everything else


_SLASHES = re.compile("//+")

_BASES = {
    NOVA_BASE: Family.NOVA,
    ZUN_BASE: Family.ZUN,
    OWN_BASE: Family.OWN,
    PAGE_BASE: Family.PAGE,
}


def family_of(path: str) -> Family:
    """Return the family of a path, in which several slashes are one.

    >>> family_of("//v2.1/os-services"), family_of("/v1x")
    (<Family.NOVA: 'nova'>, <Family.ROOT: 'root'>)
    """
    base = path.lstrip("/").partition("/")[0]
    return _BASES.get(f"/{base}", Family.ROOT)


def normalize_path(path: str) -> str:
    """Return a path in which several slashes are one, and none at the end.

    >>> normalize_path("//v1/nodes//"), normalize_path("")
    ('/v1/nodes', '/')
    """
    return _SLASHES.sub("/", path).rstrip("/") or "/"


__all__ = ["COMPUTE", "CONTAINER", "Microversions", "Version", "parse_version"]

_STANDARD = "OpenStack-API-Version"


def parse_version(text: str) -> Version:
    """Parse a microversion such as ``2.53``.

    Raises:
        TypeError: it is malformed.

    >>> parse_version("2.9") < parse_version("2.53")
    True
    """
    return microversion_parse.parse_version_string(text)


@dataclass(frozen=True, slots=True)
class Microversions:
    """The microversions of one API.

    Attributes:
        service_type: in the header ``OpenStack-API-Version``.
        legacy_header: the header that the service had before, "" if it had none.
    """

    service_type: str
    lowest: Version
    highest: Version
    legacy_header: str = ""

    def negotiate(self, headers: Mapping[str, str]) -> Version:
        """Return the version that a request asks for; the lowest one if it names none.

        Raises:
            falcon.HTTPBadRequest: the header is malformed.
            falcon.HTTPNotAcceptable: this API does not have the version.
        """
        legacy = [self.legacy_header] if self.legacy_header else []
        text = microversion_parse.get_version(dict(headers), self.service_type, legacy)
        if text is None:
            return self.lowest
        if text == "latest":
            return self.highest
        version = self._parse(text)
        if not self.lowest <= version <= self.highest:
            raise falcon.HTTPNotAcceptable(
                description=f"Version {version} is not supported by the API. "
                f"Minimum is {self.lowest} and maximum is {self.highest}."
            )
        return version

    def _parse(self, text: str) -> Version:
        major, dot, minor = text.partition(".")
        is_number = all(part.isascii() and part.isdigit() for part in (major, minor))
        if not dot or not is_number or len(text) > 20:  # Python's int() accepts more
            raise falcon.HTTPBadRequest(
                description="API version string is of invalid format: expected MAJOR.MINOR, "
                "such as 2.1, or latest"
            )
        return parse_version(text)

    def render_headers(self, version: Version) -> dict[str, str]:
        """Return the headers of an answer in a version."""
        headers = {_STANDARD: f"{self.service_type} {version}", "Vary": _STANDARD}
        if self.legacy_header:
            headers |= {
                self.legacy_header: str(version),
                "Vary": f"{_STANDARD}, {self.legacy_header}",
            }
        return headers


COMPUTE = Microversions("compute", Version(2, 1), Version(2, 96), "X-OpenStack-Nova-API-Version")
CONTAINER = Microversions("container", Version(1, 1), Version(1, 40))
