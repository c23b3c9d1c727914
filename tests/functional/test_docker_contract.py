"""The contract suite of drivers over the docker driver on real engines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetracker.virt.docker.plugin import PLUGIN
from nodetracker.virt.host.roots import Roots
from nodetracker.virt.plugin import DriverEnvironment
from nodetracker.virt.probes import ProbeRunner
from tests.contract.drivers import DriverCase
from tests.contract.drivers.docker import default_values
from tests.contract.test_driver import *  # noqa: F403 the suite itself
from tests.functional.docker_agent import create
from tests.functional.servers.engines import Dockerd, Engine, Podman


@pytest.fixture(scope="module", params=[Dockerd, Podman], ids=["dockerd", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine with one container that runs and one that does not."""
    made = request.param()
    client = made.client()
    client.start(create(client, "one"))
    create(client, "two")
    client.close()
    yield made
    made.remove()


@pytest.fixture
def case(engine: Engine, tmp_path: Path) -> Iterator[DriverCase]:
    """The driver on that engine, and this machine's files with a meminfo that can be damaged."""
    proc = tmp_path / "proc"
    proc.mkdir()
    for path in Path("/proc").iterdir():
        if path.name not in ("meminfo", "self") and not path.name.isdigit():
            (proc / path.name).symlink_to(path)
    (proc / "self").mkdir()
    (proc / "self/mountinfo").symlink_to("/proc/self/mountinfo")
    meminfo = proc / "meminfo"
    text = Path("/proc/meminfo").read_text()
    meminfo.write_text(text)
    aside = tmp_path / "aside"
    sysfs = tmp_path / "sys"
    sysfs.symlink_to("/sys")
    roots = Roots(procfs=proc, sysfs=sysfs)
    environment = DriverEnvironment("host-1", str(tmp_path), roots, ProbeRunner(10))

    def cut() -> None:
        engine.stop()
        proc.rename(aside)
        sysfs.unlink()

    def mend() -> None:
        if aside.exists():
            aside.rename(proc)
            sysfs.symlink_to("/sys")
            engine.start()
        meminfo.write_text(text)

    def change() -> None:
        client = engine.client()
        client.remove_container(create(client, "three"))
        client.close()

    made = DriverCase(
        PLUGIN.build(environment, default_values(base_url=[engine.url])),
        break_fact=lambda: meminfo.write_text("no memory here"),
        broken_fact="memory",
        cut=cut,
        mend=mend,
        change=change,
    )
    made.driver.init_host()
    yield made
    made.driver.close()
