"""A RabbitMQ server for tests: own node name, ports, directories and Erlang port mapper."""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.functional.servers.process import ServerProcess, find_free_port, require, suspend
from tests.functional.servers.tls import Authority

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
PASSWORD = "s3cret-of-rabbitmq"
USER = "nodetracker"


class RabbitMQ:
    """One broker; `process` stops, kills, suspends and restarts it.

    Args:
        authority: signs the certificate of a TLS port in addition to the plain one.
        settings: further lines of its configuration.
        sibling: another broker, by whose port mapper and cookie both find each other.
    """

    def __init__(
        self,
        authority: Authority | None = None,
        settings: Sequence[str] = (),
        sibling: "RabbitMQ | None" = None,
    ) -> None:
        require(PROGRAMS / "rabbitmq-server", "epmd", "erl_call", "setpriv")
        self.process = ServerProcess("rabbitmq", user="rabbitmq")
        self.tls_port = find_free_port() if authority is not None else None
        self._epmd_port = find_free_port() if sibling is None else sibling._epmd_port
        self.node = f"nt{self.process.port}@localhost"
        self._environment = self._make_environment()
        self._write_files(authority, settings)
        if sibling is not None:
            cookie = self.process.directory / ".erlang.cookie"
            shutil.copy2(sibling.process.directory / cookie.name, cookie)
            shutil.chown(cookie, self.process.user, self.process.user)
        self.start()

    @property
    def url(self) -> str:
        """Its URL for ``[DEFAULT] transport_url``."""
        return f"rabbit://{USER}:{PASSWORD}@127.0.0.1:{self.process.port}/"

    @property
    def tls_url(self) -> str:
        """Its URL for TLS."""
        return f"rabbit://{USER}:{PASSWORD}@127.0.0.1:{self.tls_port}/"

    def make_virtual_host(self, name: str) -> str:
        """Create a virtual host without other users; return its URL."""
        self.evaluate(f"ok = rabbit_vhost:add({_quote(name)}, {_quote(USER)})")
        self._permit(USER, name)
        return self.url + name

    def add_user(self, name: str, password: str) -> None:
        """Create a user that may do everything in the default virtual host."""
        arguments = ", ".join(map(_quote, (name, password, USER)))
        self.evaluate(f"ok = rabbit_auth_backend_internal:add_user({arguments})")
        self._permit(name, "/")

    def count_messages(self, virtual_host: str = "/") -> dict[str, int]:
        """Return the number of messages in each queue by its name."""
        queues = f"rabbit_amqqueue:info_all({_quote(virtual_host)}, [name, messages])"
        counts = f"[{{Name, N}} || [{{name, {{_, _, _, Name}}}}, {{messages, N}}] <- {queues}]"
        hexadecimal = self.evaluate(  # as erl_call prints neither quotes nor long binaries
            f"binary_to_list(binary:encode_hex(rabbit_json:encode(maps:from_list({counts}))))"
        )
        found: dict[str, int] = json.loads(bytes.fromhex(hexadecimal.strip('"')))
        return found

    def start(self) -> None:
        """Start the server and wait for it."""
        self.process.launch([PROGRAMS / "rabbitmq-server"], self._is_ready, self._environment)

    def stop(self) -> None:
        """Stop the server normally."""
        self.process.stop()

    def kill(self) -> None:
        """Kill the server, as a power cut would; the wrapper ends with it."""
        os.kill(self._broker_pid, signal.SIGKILL)
        self.process.kill()

    def freeze(self) -> None:
        """Suspend the broker; its sockets remain open."""
        suspend(self._broker_pid)

    def thaw(self) -> None:
        """Resume a suspended broker."""
        os.kill(self._broker_pid, signal.SIGCONT)

    def set_full(self, is_full: bool) -> None:
        """Raise the memory alarm, so that publishers are blocked, or clear it."""
        limit = '{absolute, "1MB"}' if is_full else "0.4"
        self.evaluate(f"ok = vm_memory_monitor:set_vm_memory_high_watermark({limit})")

    def evaluate(self, expression: str) -> str:
        """Run an Erlang expression in the broker and return its value as text.

        rabbitmqctl would start a virtual machine of its own, which takes a second.
        """
        done = subprocess.run(
            self.process.as_user(["erl_call", "-sname", self.node, "-e"]),
            input=f"{expression}.\n",
            capture_output=True,
            text=True,
            check=True,
            cwd=self.process.directory,
            env=self._environment,
            timeout=60,
        )
        assert done.stdout.startswith("{ok, "), done.stdout
        return done.stdout.removeprefix("{ok, ").removesuffix("}")

    def remove(self) -> None:
        """Stop the server and its port mapper, and delete its files."""
        if self.process.is_running:
            self.thaw()
            self.process.stop()
        subprocess.run(
            self.process.as_user(["epmd", "-port", str(self._epmd_port), "-kill"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=self._environment,
            timeout=60,
        )
        self.process.remove()

    def _permit(self, user: str, virtual_host: str) -> None:
        everything = [_quote(".*")] * 3
        arguments = ", ".join([_quote(user), _quote(virtual_host), *everything, _quote(USER)])
        self.evaluate(f"ok = rabbit_auth_backend_internal:set_permissions({arguments})")

    def _make_environment(self) -> dict[str, str]:
        home = self.process.directory
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {
            "HOME": str(home),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_PORT": str(self.process.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(find_free_port()),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(self._pid_file),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }

    def _write_files(self, authority: Authority | None, settings: Sequence[str]) -> None:
        home = self.process.directory
        lines = [f"default_user = {USER}", f"default_pass = {PASSWORD}", *settings]
        if authority is not None:
            certificate, key = authority.issue(home, "127.0.0.1")
            trusted = Path(shutil.copy(authority.certificate, home))
            for path in (certificate, key, trusted):
                path.chmod(0o644)
            lines += [
                f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                f"ssl_options.cacertfile = {trusted}",
                f"ssl_options.certfile = {certificate}",
                f"ssl_options.keyfile = {key}",
                "ssl_options.verify = verify_none",
            ]
        (home / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
        (home / "rabbitmq-env.conf").write_text("")
        (home / "enabled_plugins").write_text("[].\n")

    @property
    def _pid_file(self) -> Path:
        return self.process.directory / "rabbitmq.pid"

    @property
    def _broker_pid(self) -> int:
        """The process id of the virtual machine itself, which is a child of the wrapper."""
        return int(self._pid_file.read_text())

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.process.port), 1) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return len(connection.recv(7)) == 7
        except OSError:
            return False


def _quote(text: str) -> str:
    """Return an Erlang binary."""
    return f"<<{','.join(map(str, text.encode()))}>>"
