"""Keeps what stays as long as a session does: what the processor and the emulator can do."""

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.virt.libvirt.capabilities import parse_capabilities
from nodetracker.virt.libvirt.xml import parse_document


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """What only a restart of libvirtd changes.

    Attributes:
        cpu: the processor's features, with those that its model stands for.
        domain_capabilities: the emulator's document, None without one.
    """

    cpu: tuple[str, ...] = ()
    domain_capabilities: Element | None = None


class FeatureReader:
    """Reads the features of one session's host once.

    Args:
        capabilities: gives the host's document.
        domain_capabilities: gives the emulator's, None without one.
        expand: gives a CPU's document with all its features, None where it cannot.
        source: what errors call the hypervisor.
    """

    def __init__(
        self,
        capabilities: Callable[[], str],
        domain_capabilities: Callable[[], str | None],
        expand: Callable[[str], str | None],
        source: str,
    ) -> None:
        self._capabilities = capabilities
        self._domain_capabilities = domain_capabilities
        self._expand = expand
        self._source = source
        self._known: HostFeatures | None = None

    def read(self) -> HostFeatures:
        """Return them, asking the first time.

        Raises:
            HostDataError: a document cannot be used, or libvirt does not answer.
        """
        if self._known is None:
            text = self._domain_capabilities()
            self._known = HostFeatures(
                cpu=self._read_cpu(),
                domain_capabilities=None
                if text is None
                else parse_document(text, "domainCapabilities", self._source),
            )
        return self._known

    def _read_cpu(self) -> tuple[str, ...]:
        cpu = parse_capabilities(self._capabilities()).find("host/cpu")
        if cpu is None or cpu.find("model") is None:
            return ()
        text = self._expand(ElementTree.tostring(cpu, encoding="unicode"))
        if text is None:
            return ()
        expanded = parse_document(text, "cpu", "baseline CPU")
        return tuple(
            item.get("name", "")
            for item in expanded.iterfind("feature")
            if item.get("policy", "require") != "disable"
        )
