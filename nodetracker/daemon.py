"""The process shell: the main thread owns the signals, everything else has its own threads.

SIGTERM and SIGINT end the service, a second one ends the process at once.
SIGHUP reads the configuration again. SIGUSR2 writes a Guru Meditation report,
SIGUSR1 the stacks of all threads even when no Python code can run.
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
"""How often the service's state is looked at for systemd."""

START_EXTENSION_SECONDS = 60.0
STOP_MARGIN_SECONDS = 10.0

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service(Protocol):
    """What a daemon runs."""

    @property
    def graceful_shutdown_timeout(self) -> float:
        """Seconds that `stop` takes at most."""

    def start(
        self, on_started: Callable[[], None], on_fatal: Callable[[BaseException], None]
    ) -> None:
        """Begin in the background; tell when at work, and of an error that ends the service."""

    def stop(self) -> bool:
        """End what runs; False when something still runs at the timeout."""

    def is_making_progress(self) -> bool:
        """Tell whether every thread that matters lives and gets on."""

    def describe(self) -> str:
        """Return a line on how the service does."""


class Daemon:
    """Runs one service until a signal or a fatal error ends it.

    Args:
        reload: reads the configuration again and hands it on.
        report: writes a report on the process's state.
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
        """Run to the end; returns the exit code. Call it from the main thread."""
        threading.excepthook = _log_dead_thread
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in (*_STOP_SIGNALS, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, _ignore)
        self._service.start(self._on_started, self._on_fatal)
        self._wait()
        return self._stop()

    def _stop(self) -> int:
        for number in _STOP_SIGNALS:
            signal.signal(number, _end_at_once)
        self._notifier.stopping()
        self._notifier.extend(self._service.graceful_shutdown_timeout + STOP_MARGIN_SECONDS)
        if self._fatal is not None:
            self._notifier.status(str(self._fatal))
        has_ended = self._service.stop()
        if self._fatal is not None:
            return report_fatal(self._fatal)
        if not has_ended:
            LOG.error(
                "Something still ran %g s after the signal and was cut off",
                self._service.graceful_shutdown_timeout,
            )
            return EXIT_FAILED
        LOG.info("Stopped")
        return EXIT_DONE

    def _wait(self) -> None:
        """Serve signals and systemd until a stop signal arrives or the service fails."""
        while self._fatal is None:
            self._notify_systemd()
            select.select([self._read_end], [], [], self._look_interval())
            arrived = self._drain()
            if any(number in arrived for number in _STOP_SIGNALS):
                return
            if signal.SIGHUP in arrived:
                self._read_configuration()
            if signal.SIGUSR2 in arrived:
                self._write_report()

    def _look_interval(self) -> float | None:
        if not self._notifier.is_listening:
            return None
        watchdog = self._notifier.watchdog_seconds
        return POLL_INTERVAL if watchdog is None else min(POLL_INTERVAL, watchdog / 3)

    def _drain(self) -> bytes:
        try:
            return os.read(self._read_end, 4096)
        except BlockingIOError:
            return b""

    def _notify_systemd(self) -> None:
        if not self._notifier.is_listening:
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
        refusal = ""
        try:
            self._reload()
        except NodetrackerError as error:
            refusal = str(error)
        except Exception as error:  # the service goes on as it is
            refusal = f"{type(error).__name__}: {error}"
        if refusal:
            LOG.error("The configuration was not reloaded, all values stay: %s", refusal)
        else:
            LOG.info("The configuration has been reloaded")
        if self._is_ready:
            self._notifier.ready()

    def _write_report(self) -> None:
        try:
            self._report()
        except Exception:  # a report that fails is no reason to end
            LOG.exception("The Guru Meditation report could not be written")

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
            pass  # full: it wakes anyway


def report_fatal(error: BaseException) -> int:
    """Say in one line why the process ends; returns its exit code."""
    if isinstance(error, (ConfigError, IdentityError)):
        LOG.critical("%s", error)
        return EXIT_CONFIG
    LOG.critical("Ending after an unexpected error", exc_info=error)
    return EXIT_FAILED


def _log_dead_thread(arguments: threading.ExceptHookArgs) -> None:
    name = "a thread" if arguments.thread is None else arguments.thread.name
    LOG.critical("Thread %s died", name, exc_info=arguments.exc_value)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor tells the main loop."""


def _end_at_once(number: int, frame: object) -> None:
    os._exit(EXIT_FAILED)
