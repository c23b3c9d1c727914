"""Build nodes for libvirt's test driver: files that describe whole hypervisors."""

from pathlib import Path

from tests.functional.servers.process import skip_or_fail


def require_binding() -> None:
    """Skip, or fail where ``CI=true``, without libvirt-python."""
    try:
        import libvirt  # noqa: F401
    except ImportError:
        skip_or_fail("needs libvirt-python: see bindep.txt")


def pci_device(address: str, numa_node: int | None = None, more: str = "") -> str:
    """Build a node device of a network card."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    numa = "" if numa_node is None else f"<numa node='{numa_node}'/>"
    return f"""
  <device>
    <name>pci_{domain}_{bus}_{slot}_{function}</name><parent>computer</parent>
    <capability type='pci'>
      <class>0x020000</class>
      <domain>{int(domain, 16)}</domain><bus>{int(bus, 16)}</bus>
      <slot>{int(slot, 16)}</slot><function>{int(function, 16)}</function>
      <product id='0x10fb'>card</product><vendor id='0x8086'>maker</vendor>{numa}{more}
    </capability>
  </device>"""


def domain(name: str, uuid: str, vcpus: int = 1, memory_mb: int = 512, more: str = "") -> str:
    """Build a domain of such a node."""
    return f"""
  <domain type='test'>
    <name>{name}</name><uuid>{uuid}</uuid>
    <memory unit='MiB'>{memory_mb}</memory><vcpu>{vcpus}</vcpu>{more}
    <os><type>hvm</type></os>
  </domain>"""


def write_node(
    path: Path, sockets: int = 1, cores: int = 4, memory_mb: int = 8192, more: str = ""
) -> str:
    """Write one node's file and return its URI."""
    path.write_text(
        f"""<node>
  <cpu><mhz>2000</mhz><model>i986</model><active>{sockets * cores}</active>
    <nodes>1</nodes><sockets>{sockets}</sockets><cores>{cores}</cores><threads>1</threads></cpu>
  <memory>{memory_mb * 1024}</memory>
  <device>
    <name>computer</name>
    <capability type='system'>
      <hardware><vendor>v</vendor><uuid>11111111-1111-1111-1111-111111111111</uuid></hardware>
      <firmware/>
    </capability>
  </device>{more}
</node>"""
    )
    return f"test://{path}"
