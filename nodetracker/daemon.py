"""Run a service as a daemon: the main thread handles signals and systemd.

SIGTERM and SIGINT stop the service; a second one ends the process immediately.
SIGHUP reloads the configuration. SIGUSR2 writes a Guru Meditation report.
SIGUSR1 prints the stacks of all threads; SIGABRT does so even when no Python
code can run, and ends the process.
"""

import faulthandler
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Protocol

from nodetracker.errors import ConfigError, IdentityError, NodetrackerError
from nodetracker.systemd import SystemdNotifier

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


class Daemon:
    """Runs one service until a signal or a fatal error ends it.

    Args:
        reload: reloads the configuration and applies it.
        report: writes a report of the process's state.
    """

    def __init__(
        self,
        service: Service,
        reload: Callable[[], None],
        report: Callable[[], None],
    ) -> None:
        self._service = service
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
            if any(number in arrived for number in _STOP_SIGNALS):
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
