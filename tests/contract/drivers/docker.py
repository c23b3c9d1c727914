"""The docker driver under the contract suite, with a captured machine and a stub engine."""

import shutil

from nodetracker.virt.docker.plugin import PLUGIN
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.contract.drivers import DriverCase
from tests.engine_stub import EngineStub, describe_container
from tests.hosts.captures import CAPTURES, HERE, unpack


def default_values(**changes):
    """Return the defaults of the driver's options, with some values replaced."""
    return {option.dest: option.default for option in PLUGIN.options} | changes


def make_case(tmp_path):
    name = CAPTURES[0]
    unpack(HERE / f"{name}.tar.xz", tmp_path)
    root = tmp_path / name
    (root / "var/lib/docker").mkdir(parents=True)
    meminfo = root / "proc" / "meminfo"
    text = meminfo.read_text()
    aside = tmp_path / "aside"
    stub = EngineStub(tmp_path)
    stub.add(describe_container(1), describe_container(2, Memory=0))
    environment = DriverEnvironment(
        "host-1", str(tmp_path), Roots(root / "proc", root / "sys", root), ProbeRunner(5)
    )

    def cut():
        stub.stop()
        shutil.move(root, aside)

    def mend():
        if aside.exists():
            shutil.move(aside, root)
            stub.start()
        meminfo.write_text(text)

    def change():
        event = {"Type": "container", "Action": "start", "Actor": {"ID": f"{1:064x}"}}
        stub.send_event(event | {"timeNano": 1_795_000_000_000_000_001})

    return DriverCase(
        PLUGIN.build(environment, default_values(base_url=[stub.url])),
        break_fact=lambda: meminfo.write_text("no memory here"),
        broken_fact="memory",
        cut=cut,
        mend=mend,
        change=change,
        close=stub.stop,
    )
