"""Read the features of the processor and the emulator, once per session."""

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from nodetracker.virt.libvirt.capabilities import parse_capabilities
from nodetracker.virt.libvirt.xml import parse_document


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """Features that change only when libvirtd restarts.

    Attributes:
        cpu: the processor's features, including those that its model implies.
        domain_capabilities: the domain capabilities document, None if not supported.
    """

    cpu: tuple[str, ...] = ()
    domain_capabilities: Element | None = None


class FeatureReader:
    """Reads the features of one session's host once.

    Args:
        get_capabilities: returns the host's capabilities document.
        get_domain_capabilities: returns the domain capabilities, None if not supported.
        expand_cpu: returns a CPU's document with all its features, None if not supported.
        source: name of the hypervisor in errors.
    """

    def __init__(
        self,
        get_capabilities: Callable[[], str],
        get_domain_capabilities: Callable[[], str | None],
        expand_cpu: Callable[[str], str | None],
        source: str,
    ) -> None:
        self._get_capabilities = get_capabilities
        self._get_domain_capabilities = get_domain_capabilities
        self._expand_cpu = expand_cpu
        self._source = source
        self._features: HostFeatures | None = None

    def read(self) -> HostFeatures:
        """Return the features; only the first successful call queries libvirt.

        Raises:
            HostDataError: a document is invalid, or libvirt does not answer.
        """
        if self._features is None:
            text = self._get_domain_capabilities()
            self._features = HostFeatures(
                cpu=self._read_cpu(),
                domain_capabilities=None
                if text is None
                else parse_document(text, "domainCapabilities", self._source),
            )
        return self._features

    def _read_cpu(self) -> tuple[str, ...]:
        cpu = parse_capabilities(self._get_capabilities()).find("host/cpu")
        if cpu is None or cpu.find("model") is None:
            return ()
        text = self._expand_cpu(ElementTree.tostring(cpu, encoding="unicode"))
        if text is None:
            return ()
        expanded = parse_document(text, "cpu", "baseline CPU")
        return tuple(
            item.get("name", "")
            for item in expanded.iterfind("feature")
            if item.get("policy", "require") != "disable"
        )
