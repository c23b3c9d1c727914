"""Run a service as a daemon: the main thread handles signals and systemd.

SIGTERM and SIGINT stop the service; a second one ends the process immediately.
SIGHUP reloads the configuration, or ends a service that a person runs in the terminal
that was closed. SIGUSR2 writes a Guru Meditation report.
SIGUSR1 prints the stacks of all threads; SIGABRT does so even when no Python
code can run, and ends the process.
"""

import faulthandler
import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Protocol

from nodetracker.model.errors import ConfigError, IdentityError, NodetrackerError

MICROSECONDS = 1_000_000


class SystemdNotifier:
    """Notifies systemd of the process's state.

    It removes its variables from the environment, so that no child process
    notifies in its place.

    Args:
        environment: contains NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID
            when systemd started the process.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._last_status = ""
        microseconds = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.watchdog_seconds: float | None = None
        if microseconds.isdigit() and int(microseconds) and owner in ("", str(os.getpid())):
            self.watchdog_seconds = int(microseconds) / MICROSECONDS

    @property
    def is_enabled(self) -> bool:
        """True when systemd expects notifications."""
        return bool(self._address)

    def ready(self) -> None:
        """Notify that the service is ready, after its start or a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the service is stopping."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Request more time to start or to stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def status(self, text: str) -> None:
        """Send a one-line status, if it changed."""
        line = " ".join(text.split())
        if line != self._last_status:
            self._last_status = line
            self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode(), self._address)
        except OSError:
            pass  # systemd does not respond, and nothing else could be notified


LOG = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78

POLL_INTERVAL = 5.0
"""Seconds between checks of the service's state for systemd."""

START_EXTENSION_SECONDS = 60.0
STOP_MARGIN_SECONDS = 10.0

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service(Protocol):
    """A service that a daemon runs."""

    @property
    def graceful_shutdown_timeout(self) -> float:
        """Maximum duration of `stop` in seconds."""

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Start in the background.

        Args:
            on_started: called when the service is ready.
            on_fatal: called with an error that ends the service.
        """

    def stop(self) -> bool:
        """Stop all threads; return False when one is still running at the timeout."""

    def is_making_progress(self) -> bool:
        """Return whether every essential thread is alive and making progress."""

    def describe(self) -> str:
        """Return the service's status in one line."""


def is_started_by_hand(environ: Mapping[str, str]) -> bool:
    """Return whether a person runs this process in a terminal, and wants it to end with that.

    ``nohup`` ignores SIGHUP; systemd names the process that it started.
    """
    return (
        sys.stdin.isatty()
        and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        and environ.get("SYSTEMD_EXEC_PID") != str(os.getpid())
    )


class Daemon:
    """Runs one service until a signal or a fatal error ends it.

    Args:
        reload: reloads the configuration and applies it.
        report: writes a report of the process's state.
        ends_with_terminal: SIGHUP ends it, as its terminal was closed.
    """

    def __init__(
        self,
        service: Service,
        reload: Callable[[], None],
        report: Callable[[], None],
        ends_with_terminal: bool = False,
    ) -> None:
        self._service = service
        self._ends = (*_STOP_SIGNALS, signal.SIGHUP) if ends_with_terminal else _STOP_SIGNALS
        self._reload = reload
        self._report = report
        self._notifier = SystemdNotifier(os.environ)
        self._fatal: BaseException | None = None
        self._has_started = threading.Event()
        self._is_ready = False
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def run(self) -> int:
        """Run until the service ends; return the exit code. Call it from the main thread."""
        threading.excepthook = _log_dead_thread
        faulthandler.enable()
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in (*_STOP_SIGNALS, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, _ignore)
        signal.signal(signal.SIGUSR1, _print_stacks)
        gc.freeze()  # what is loaded stays: collections after long lists need not traverse it
        self._service.start(self._on_started, self._on_fatal)
        self._wait()
        return self._stop()

    def _stop(self) -> int:
        for number in _STOP_SIGNALS:
            signal.signal(number, _end_immediately)
        self._notifier.stopping()
        self._notifier.extend(self._service.graceful_shutdown_timeout + STOP_MARGIN_SECONDS)
        fatal_code: int | None = None
        if self._fatal is not None:
            self._notifier.status(str(self._fatal))
            fatal_code = report_fatal(self._fatal)  # first: the stop may take long, or fail as well
        has_ended = self._service.stop()
        if fatal_code is not None:
            return fatal_code
        if not has_ended:
            LOG.error(
                "Not all threads stopped within %g s; ending the process anyway",
                self._service.graceful_shutdown_timeout,
            )
            return EXIT_FAILED
        LOG.info("Stopped")
        return EXIT_DONE

    def _wait(self) -> None:
        """Handle signals and notify systemd until a stop signal arrives or the service fails."""
        while self._fatal is None:
            self._notify_systemd()
            select.select([self._read_end], [], [], self._poll_interval())
            arrived = self._read_signals()
            if any(number in arrived for number in self._ends):
                return
            if signal.SIGHUP in arrived:
                self._read_configuration()
            if signal.SIGUSR2 in arrived:
                self._write_report()

    def _poll_interval(self) -> float | None:
        if not self._notifier.is_enabled:
            return None
        watchdog = self._notifier.watchdog_seconds
        return POLL_INTERVAL if watchdog is None else min(POLL_INTERVAL, watchdog / 3)

    def _read_signals(self) -> bytes:
        try:
            return os.read(self._read_end, 4096)
        except BlockingIOError:
            return b""

    def _notify_systemd(self) -> None:
        if not self._notifier.is_enabled:
            return
        if not self._has_started.is_set():
            self._notifier.extend(START_EXTENSION_SECONDS)
        elif not self._is_ready:
            self._is_ready = True
            self._notifier.ready()
        self._notifier.status(self._service.describe())
        if self._service.is_making_progress():
            self._notifier.alive()

    def _read_configuration(self) -> None:
        self._notifier.reloading()
        problem = ""
        try:
            self._reload()
        except NodetrackerError as error:
            problem = str(error)
        except Exception as error:  # the service keeps its configuration
            problem = f"{type(error).__name__}: {error}"
        if problem:
            LOG.error("Configuration not reloaded: %s; keeping all values", problem)
        else:
            LOG.info("Configuration reloaded")
        if self._is_ready:
            self._notifier.ready()

    def _write_report(self) -> None:
        try:
            self._report()
        except Exception:  # a failed report does not end the service
            LOG.exception("Writing the Guru Meditation report failed")

    def _on_started(self) -> None:
        self._has_started.set()
        self._wake()

    def _on_fatal(self, error: BaseException) -> None:
        self._fatal = error
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            pass  # the pipe is full, so the main thread wakes up anyway


def report_fatal(error: BaseException) -> int:
    """Log why the process ends; return its exit code."""
    if isinstance(error, (ConfigError, IdentityError)):
        LOG.critical("%s", error)
        return EXIT_CONFIG
    LOG.critical("Unexpected error; ending the process", exc_info=error)
    return EXIT_FAILED


def _log_dead_thread(arguments: threading.ExceptHookArgs) -> None:
    name = "a thread" if arguments.thread is None else arguments.thread.name
    LOG.critical("Thread %s died", name, exc_info=arguments.exc_value)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor notifies the main loop."""


def _print_stacks(number: int, frame: object) -> None:
    """Print them while no other thread runs Python code.

    `faulthandler.register` prints them while others run, and CPython 3.11 sometimes crashes
    when a frame is left at that moment.
    """
    faulthandler.dump_traceback(all_threads=True)


def _end_immediately(number: int, frame: object) -> None:
    os._exit(EXIT_FAILED)
