"""The local driver under the contract suite, on a captured machine whose files can be damaged."""

import shutil

from nodetracker.virt.host.roots import Roots
from nodetracker.virt.local.plugin import PLUGIN
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.contract.drivers import DriverCase
from tests.hosts.captures import CAPTURES, HERE, unpack


def make_case(tmp_path):
    name = CAPTURES[0]
    unpack(HERE / f"{name}.tar.xz", tmp_path)
    root = tmp_path / name
    meminfo = root / "proc" / "meminfo"
    text = meminfo.read_text()
    aside = tmp_path / "aside"

    def mend():
        if aside.exists():
            shutil.move(aside, root)
        meminfo.write_text(text)

    environment = DriverEnvironment(
        "host-1", str(tmp_path), Roots(root / "proc", root / "sys", root), ProbeRunner(5)
    )
    return DriverCase(
        PLUGIN.build(environment, {}),
        break_fact=lambda: meminfo.write_text("no memory here"),
        broken_fact="memory",
        cut=lambda: shutil.move(root, aside),
        mend=mend,
    )
