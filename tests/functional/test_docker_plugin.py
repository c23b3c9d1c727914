"""A real dockerd with the plugin: what it refuses, and that Docker goes on whatever fails."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import docker
import pytest

from nodetracker.hooks import docker as installer
from nodetracker.hooks.docker_plugin import DEADLINE_SECONDS
from tests.docker_plugin import PluginService
from tests.door import ADMITTED, REASON, REFUSED, Door, listen_without_accepting
from tests.functional.servers.engines import IMAGE, SLEEP, Dockerd
from tests.programs import wait_until

MIB = 2**20


class PluggedDockerd(Dockerd):
    """A dockerd that looks for plugins in its own directory."""

    def command(self) -> list[str]:
        """Return the command line."""
        plugins = self.directory / "run/docker/plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        return [
            "sh", "-c",
            f"mkdir -p /run/docker/plugins && mount --bind {plugins} /run/docker/plugins && "
            'exec "$@"', "sh", *super().command(),
        ]  # fmt: skip


class Host:
    """The engine, and what `admission install` and systemd do there."""

    def __init__(self) -> None:
        self.engine = PluggedDockerd()
        self.root = self.engine.directory
        (self.root / "proc").symlink_to("/proc")
        (self.root / "run/docker.sock").symlink_to(self.engine.socket)
        (self.root / "usr/lib/systemd/system").mkdir(parents=True)
        (self.root / "usr/lib/systemd/system/docker.service").touch()
        self.door = self.root / "a.sock"
        self.plugin = installer.DockerPlugin(self.root)
        self.service: PluginService | None = None

    def run(self, *command: str) -> str:
        """Do what systemctl would."""
        unit = self.root / "etc/systemd/system/nodetracker-docker.service"
        socket = self.root / "run/docker/plugins/nodetracker.sock"
        if command[1] == "show":
            return f"{self.engine.daemon_pid()}\n"
        if command[1] == "enable" and self.service is None:
            self.service = PluginService(unit, socket)
        if command[1] == "disable" and self.service is not None:
            self.service.stop()
            self.service = None
        return ""

    def install(self, when_unavailable: str = "allow") -> None:
        """Install the plugin and reload Docker."""
        _, steps = self.plugin.install(self.door, when_unavailable)
        assert steps == ["systemctl reload docker"]
        self.engine.reload()
        wait_until(self.is_in_use)

    def is_in_use(self) -> bool:
        """Return whether Docker asks the plugin."""
        return self.plugin._is_in_use()

    def remove(self) -> None:
        """Remove all."""
        try:
            self.engine.remove()
        finally:  # also after a test that left Docker without its plugin
            self.engine.stop()
            self.engine.process.remove()
            self.run("systemctl", "disable")


class Connection:
    """A client of the engine that is closed."""

    def __init__(self, host: Host) -> None:
        self._client = host.engine.client()

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *details: object) -> None:
        self._client.close()


def measure(act: Callable[[], object]) -> float:
    """Return the seconds that an action takes; Docker's client gives up after a minute."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def create(client: Any, name: str) -> str:
    """Create a container of 64 MiB; returns its id."""
    config = client.create_host_config(mem_limit=64 * MIB, network_mode="none")
    return str(client.create_container(IMAGE, SLEEP, name=name, host_config=config)["Id"])


@pytest.fixture
def new_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host()
    monkeypatch.setattr(installer, "run_program", host.run)
    yield host
    host.remove()


@pytest.fixture(scope="module")
def shared() -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        host = Host()
        patch.setattr(installer, "run_program", host.run)
        host.install()
        yield host
        host.remove()


@pytest.fixture
def client(shared: Host) -> Iterator[Any]:
    with Connection(shared) as client:
        yield client
        for item in client.containers(all=True):
            client.remove_container(item["Id"], force=True)


def test_a_refusal_is_read_by_docker_s_client(shared: Host, client: Any) -> None:
    with Door(shared.door, REFUSED) as door:
        with pytest.raises(docker.errors.APIError) as caught:
            create(client, "web")
        assert caught.value.explanation == f"authorization denied by plugin nodetracker: {REASON}"
        (asked,) = door.questions
        assert (asked["ask"], asked["name"]) == ("create", "web")
        assert asked["document"]["HostConfig"]["Memory"] == 64 * MIB
        door.answer = ADMITTED
        container = create(client, "web")
        door.answer = REFUSED
        for act in (client.start, client.restart):
            with pytest.raises(docker.errors.APIError, match=REASON[:20]):
                act("web")
        with pytest.raises(docker.errors.APIError, match=REASON[:20]):
            client.update_container("web", mem_limit=128 * MIB)
        assert client.inspect_container("web")["State"]["Status"] == "created"
    created, start, restart, update = door.questions[2:]
    assert (created["ask"], created["id"]) == ("created", container)
    assert created["document"] == asked["document"]
    assert [question["ask"] for question in (start, restart, update)] == [
        "start",
        "start",
        "update",
    ]
    assert {question["id"] for question in (start, restart, update)} == {"web"}
    assert update["document"]["Memory"] == 128 * MIB


def test_a_body_of_more_than_a_mebibyte_does_not_arrive(shared: Host, client: Any) -> None:
    with Door(shared.door) as door:
        labels = {"text": "x" * (2 * MIB)}
        try:
            client.create_container(IMAGE, SLEEP, labels=labels)
        except docker.errors.APIError as error:
            print(error)  # newer ones refuse more than 4 MiB themselves
    assert [question["document"] for question in door.questions if question["ask"] == "create"] == [
        None
    ]


@pytest.mark.parametrize("state", ["gone", "frozen", "queue is full"])
def test_docker_goes_on_without_the_agent(shared: Host, client: Any, state: str) -> None:
    sockets = []
    door = Door(shared.door, None) if state == "frozen" else None
    if state == "queue is full":
        sockets = listen_without_accepting(shared.door)
    try:
        for name, act in (
            ("create", lambda: create(client, "web")),
            ("start", lambda: client.start("web")),
            ("stop", lambda: client.stop("web")),
        ):
            print(f"{state}: {name} {measure(act):.2f} s")
        wait_until(lambda: measure(client.containers) < DEADLINE_SECONDS / 2)  # it asks nothing
    finally:
        if door is not None:
            door.__exit__()
        for each in sockets:
            each.close()
        shared.door.unlink(missing_ok=True)


@pytest.mark.parametrize("failure", ["kill", "freeze"])
def test_docker_answers_again_when_the_plugin_s_process_fails(
    shared: Host, client: Any, failure: str
) -> None:
    assert shared.service is not None
    client.containers()
    getattr(shared.service, failure)()
    print(f"{failure}: {measure(client.containers):.2f} s")
    wait_until(lambda: measure(client.containers) < 1)


def test_a_request_that_waits_for_a_process_that_fails_is_answered(
    shared: Host, client: Any
) -> None:
    """Docker repeats its call of the plugin."""
    assert shared.service is not None
    create(client, "web")
    with Door(shared.door, None) as door:
        caught: list[Exception] = []

        def start() -> None:
            try:
                client.start("web")
            except docker.errors.APIError as error:
                caught.append(error)

        thread = threading.Thread(target=start)
        thread.start()
        wait_until(lambda: "start" in [question["ask"] for question in door.questions])
        shared.service.kill()
        began = time.monotonic()
        thread.join()
    print(f"start: {time.monotonic() - began:.2f} s after the kill, {caught}")
    assert caught == []


def test_the_socket_is_gone_before_the_configuration_s_key(new_host: Host) -> None:
    """What the documents warn of, and the way out of it."""
    new_host.install()
    with Connection(new_host) as client:
        client.start(create(client, "web"))
        new_host.run("systemctl", "disable")
        for act in (client.containers, lambda: client.stop("web")):
            began = time.monotonic()
            with pytest.raises(docker.errors.APIError) as caught:
                act()
            took = time.monotonic() - began
            print(f"without the socket: {took:.2f} s: {caught.value.explanation}")
        new_host.run("systemctl", "enable")
        began = time.monotonic()
        client.containers()
        print(f"with the socket again: {time.monotonic() - began:.2f} s")
        new_host.run("systemctl", "disable")
        new_host.engine.config.write_text("{}")  # by hand
        new_host.engine.reload()
        wait_until(lambda: can_list(client))


def can_list(client: Any) -> bool:
    """Return whether Docker answers."""
    try:
        client.containers()
    except docker.errors.APIError:
        return False
    return True


def test_removal_leaves_docker_as_it_was(new_host: Host) -> None:
    before = new_host.engine.config.read_text()
    new_host.install()
    with Door(new_host.door, REFUSED), Connection(new_host) as client:
        _, steps = new_host.plugin.remove()
        assert steps[0] == "systemctl reload docker"
        with pytest.raises(docker.errors.APIError):  # not yet
            create(client, "web")
        new_host.engine.reload()  # dockerd does so when it gets to it
        wait_until(lambda: new_host.plugin.remove()[1] == [])
        client.start(create(client, "web"))
    assert new_host.engine.config.read_text() == before
    assert not (new_host.root / "etc").exists()
    assert new_host.service is None
    new_host.engine.stop()
    new_host.engine.start()


def test_docker_starts_with_the_plugin(new_host: Host) -> None:
    new_host.install()
    new_host.engine.stop()
    new_host.engine.start()
    assert new_host.is_in_use()


def test_the_time_that_it_adds(new_host: Host) -> None:
    """Printed; on a host of its own the limit is 5 ms for ps and 100 ms for create and start."""

    def measure_ms(act: Any, count: int = 40) -> tuple[float, float]:
        """Return the median and the least."""
        times = [measure(act) * 1000 for _ in range(count)]
        return statistics.median(times), min(times)

    def run() -> None:
        client.start(create(client, "web"))

    def remove() -> None:
        client.remove_container("web", force=True)

    results: dict[str, list[tuple[float, float]]] = {"ping": [], "ps": [], "run": []}
    with Connection(new_host) as client, Door(new_host.door):
        for number in range(50):
            create(client, f"c{number}")
        for is_installed in (False, True):
            if is_installed:
                new_host.install()
            results["ping"].append(measure_ms(client.ping))
            results["ps"].append(measure_ms(lambda: client.containers(all=True)))
            times = []
            for _ in range(10):
                times.append(measure(run) * 1000)
                remove()
            results["run"].append((statistics.median(times), min(times)))
    for name, ((without, _), (with_it, _)) in results.items():
        print(f"{name}: {without:.1f} ms, with the plugin {with_it:.1f} ms")
    _, least = results["ping"][1]
    assert least < 100
