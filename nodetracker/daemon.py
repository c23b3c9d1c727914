"""The process shell: the main thread owns the signals, everything else has its own threads."""

import logging
import os
import select
import signal
from collections.abc import Callable
from typing import Protocol

from nodetracker.errors import ConfigError, IdentityError

LOG = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service(Protocol):
    """What a daemon runs."""

    def start(self, on_fatal: Callable[[BaseException], None]) -> None:
        """Begin in the background and tell of an error that ends the service."""

    def stop(self, timeout_seconds: float) -> bool:
        """End what runs; False when something still runs at the timeout."""


class Daemon:
    """Runs one service until a signal or a fatal error ends it.

    SIGTERM or SIGINT lets what runs end within the timeout; a second one ends
    the process at once.
    """

    def __init__(self, service: Service, graceful_shutdown_timeout: float) -> None:
        self._service = service
        self._timeout = graceful_shutdown_timeout
        self._fatal: BaseException | None = None
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def run(self) -> int:
        """Run to the end; returns the exit code. Call it from the main thread."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in _STOP_SIGNALS:
            signal.signal(number, _ignore)
        self._service.start(self._on_fatal)
        self._wait()
        for number in _STOP_SIGNALS:
            signal.signal(number, _end_at_once)
        has_ended = self._service.stop(self._timeout)
        if self._fatal is not None:
            return report_fatal(self._fatal)
        if not has_ended:
            LOG.error("Something still ran %g s after the signal and was cut off", self._timeout)
            return EXIT_FAILED
        LOG.info("Stopped")
        return EXIT_DONE

    def _wait(self) -> None:
        """Block until a stop signal arrives or the service fails."""
        while self._fatal is None:
            select.select([self._read_end], [], [])
            arrived = os.read(self._read_end, 64)
            if any(number in arrived for number in _STOP_SIGNALS):
                return

    def _on_fatal(self, error: BaseException) -> None:
        self._fatal = error
        os.write(self._write_end, b"\0")


def report_fatal(error: BaseException) -> int:
    """Say in one line why the process ends; returns its exit code."""
    if isinstance(error, (ConfigError, IdentityError)):
        LOG.critical("%s", error)
        return EXIT_CONFIG
    LOG.critical("Ending after an unexpected error", exc_info=error)
    return EXIT_FAILED


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor tells the main loop."""


def _end_at_once(number: int, frame: object) -> None:
    os._exit(EXIT_FAILED)
