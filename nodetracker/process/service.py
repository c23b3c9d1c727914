"""Run a service on oslo.service: the main thread handles signals and systemd.

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
import threading
import time
from collections.abc import Callable
from typing import ClassVar

from oslo_config import cfg

from nodetracker.model.errors import ConfigError, IdentityError, NodetrackerError, find_exhaustion
from nodetracker.process.backend import choose_threads
from nodetracker.process.daemon import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED, SystemdNotifier
from nodetracker.process.loops import PeriodicLoop, PeriodicTasks, Progress, Wakeup
from nodetracker.process.outage import OutageLog

choose_threads()

from oslo_service import service  # noqa: E402 - not before

LOG = logging.getLogger(__name__)

POLL_INTERVAL = 5.0
"""Seconds between checks of the service's state for systemd."""

START_EXTENSION_SECONDS = 60.0
STOP_MARGIN_SECONDS = 10.0
STALL_SECONDS = 120.0
RETRY_SECONDS = 10.0
"""Seconds after which periodic tasks are run again that failed in an outage."""

NEEDS_OPERATOR = (ConfigError, IdentityError)
"""Errors by which a process ends with 78."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SIGNALS = (*_STOP_SIGNALS, signal.SIGHUP, signal.SIGUSR2)


class Service(service.Service):  # type: ignore[misc]
    """A service whose timers run in its thread group; oslo.service launches it.

    Of the library (4.8.0), `start`, `wait`, `reset` and `stop` are overridden: its own handlers
    end the process in the middle of a stop or hang after SIGHUP, and its group waits for ever
    for a timer that hangs. It does not fork.

    Attributes:
        graceful_shutdown_timeout: limit of the duration of `end`, in seconds.
        has_started: set when the service is ready.
        fatal: the error that ends the service.
        fatal_errors: of timers, they end the service.
    """

    fatal_errors: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self, graceful_shutdown_timeout: float) -> None:
        super().__init__()
        self.graceful_shutdown_timeout = graceful_shutdown_timeout
        self.fatal: BaseException | None = None
        self.has_started = threading.Event()
        self._loops: list[PeriodicLoop] = []
        self._slow_loops: list[PeriodicLoop] = []
        self._is_ready = False
        self._exit_code = EXIT_FAILED
        self._write_end: int | None = None

    # What a service of a program defines.

    def begin(self) -> None:
        """Start in the background, and call `notify_ready` once it is ready.

        Raises:
            NodetrackerError: it cannot start; nothing runs.
        """
        raise NotImplementedError

    def end(self) -> bool:
        """Stop everything; return False when something still runs at the timeout."""
        raise NotImplementedError

    def is_making_progress(self) -> bool:
        """Return whether every essential thread is alive and making progress."""
        return all(loop.is_making_progress(self.stall_seconds) for loop in self._loops)

    @property
    def stall_seconds(self) -> float:
        """How long a step of an activity may take until it makes no progress."""
        return STALL_SECONDS

    def describe(self) -> str:
        """Return the service's status in one line."""
        raise NotImplementedError

    # What it uses for that.

    def add_timer(
        self,
        name: str,
        tick: Callable[[], None],
        interval_seconds: float | None,
        wakeup: Wakeup | None = None,
        progress: Progress | None = None,
        is_slow: bool = False,
    ) -> PeriodicLoop:
        """Return a new timer, see `PeriodicLoop`; it is to be started.

        Args:
            is_slow: neither the watchdog nor a stop waits for it, and no error of it is fatal.
        """
        fatal = () if is_slow else self.fatal_errors
        loop = PeriodicLoop(
            name, tick, interval_seconds, self.fail, fatal, wakeup=wakeup, progress=progress
        )
        (self._slow_loops if is_slow else self._loops).append(loop)
        return loop

    def add_tasks(
        self,
        name: str,
        tasks: PeriodicTasks,
        interval_seconds: float | None,
        wakeup: Wakeup | None = None,
        progress: Progress | None = None,
        is_slow: bool = False,
        outages: OutageLog | None = None,
    ) -> PeriodicLoop:
        """Return a new timer of periodic tasks, as `add_timer`.

        Args:
            outages: logs when the tasks fail as it says, instead of the timer each time; they
                are then run again soon, as their failure is an outage until they succeed.
        """
        if outages is None:
            run = tasks.run_tasks
            return self.add_timer(name, run, interval_seconds, wakeup, progress, is_slow)

        retry = None if interval_seconds is None else min(interval_seconds, RETRY_SECONDS)

        def tick() -> None:
            outages.run(name, tasks.run_tasks)
            loop.change_interval(retry if outages.is_failing(name) else interval_seconds)

        loop = self.add_timer(name, tick, interval_seconds, wakeup, progress, is_slow)
        return loop

    @property
    def loops(self) -> list[PeriodicLoop]:
        """All timers, the slow ones last."""
        return [*self._loops, *self._slow_loops]

    def join_loops(self, deadline: float) -> bool:
        """Return whether the timers that are not slow have ended by a monotonic time."""
        return all(loop.join(deadline - time.monotonic()) for loop in self._loops)

    def notify_ready(self) -> None:
        """Note that the service is ready."""
        self.has_started.set()
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Let an error end the service."""
        self.fatal = error
        self._wake()

    # What oslo.service calls, in the main thread.

    def run(
        self,
        conf: cfg.ConfigOpts,
        reload: Callable[[], None],
        report: Callable[[], None],
        ends_with_terminal: bool = False,
    ) -> int:
        """Run until a signal or a fatal error; return the exit code.

        The caller ends the process by that code at once: an interpreter that exits waits for
        the threads of all timers.

        Args:
            reload: reloads the configuration and applies it.
            report: writes a report of the process's state.
            ends_with_terminal: SIGHUP ends it, as its terminal was closed.

        Raises:
            NodetrackerError: it could not start.
        """
        self._reload, self._report = reload, report
        self._ends = (*_STOP_SIGNALS, signal.SIGHUP) if ends_with_terminal else _STOP_SIGNALS
        hold_signals()
        logging.getLogger(service.launch.__module__).addFilter(_is_no_advice)
        try:
            service.launch(conf, self, workers=1, restart_method="mutate", no_fork=True)
        except NodetrackerError:
            raise
        except BaseException as error:
            return report_fatal(error)
        return self._exit_code

    def start(self) -> None:
        """Handle signals, and begin."""
        threading.excepthook = _log_dead_thread
        faulthandler.enable()
        self._systemd = SystemdNotifier(os.environ)
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        handlers = service.SignalHandler()
        handlers.clear()  # those of the launcher
        handlers.add_handlers([number.name for number in _SIGNALS], _ignore)
        handlers.add_handler("SIGUSR1", _print_stacks)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        gc.freeze()  # what is loaded stays: collections after long lists need not traverse it
        self.begin()

    def wait(self) -> None:
        """Handle signals and notify systemd until a stop signal or a fatal error; then stop."""
        while self.fatal is None:
            self._notify_systemd()
            select.select([self._read_end], [], [], self._poll_interval())
            arrived = self._read_signals()
            if any(number in arrived for number in self._ends):
                break
            if signal.SIGHUP in arrived:
                self.reset()
            if signal.SIGUSR2 in arrived:
                self._write_report()
        self.stop()

    def reset(self) -> None:
        """Reload the configuration; keep all values if that fails."""
        self._systemd.reloading()
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
            self._systemd.ready()

    def stop(self, graceful: bool = True) -> None:
        """Stop by the deadline; a second signal ends the process immediately."""
        handlers = service.SignalHandler()
        handlers.add_handlers([number.name for number in _STOP_SIGNALS], _end_immediately)
        self._systemd.stopping()
        self._systemd.extend(self.graceful_shutdown_timeout + STOP_MARGIN_SECONDS)
        code = EXIT_DONE
        if self.fatal is not None:
            self._systemd.status(str(self.fatal))
            code = report_fatal(self.fatal)  # first: the stop may take long, or fail as well
        has_ended = self.end()
        super().stop(graceful=False)  # waiting for its timers would have no limit
        if code == EXIT_DONE and not has_ended:
            LOG.error(
                "Not all threads stopped within %g s; ending the process anyway",
                self.graceful_shutdown_timeout,
            )
            code = EXIT_FAILED
        elif code == EXIT_DONE:
            LOG.info("Stopped")
        self._exit_code = code

    def _poll_interval(self) -> float | None:
        if not self._systemd.is_enabled:
            return None
        watchdog = self._systemd.watchdog_seconds
        return POLL_INTERVAL if watchdog is None else min(POLL_INTERVAL, watchdog / 3)

    def _read_signals(self) -> bytes:
        try:
            return os.read(self._read_end, 4096)
        except BlockingIOError:
            return b""

    def _notify_systemd(self) -> None:
        if not self._systemd.is_enabled:
            return
        if not self.has_started.is_set():
            self._systemd.extend(START_EXTENSION_SECONDS)
        elif not self._is_ready:
            self._is_ready = True
            self._systemd.ready()
        self._systemd.status(self.describe())
        if self.is_making_progress():
            self._systemd.alive()

    def _write_report(self) -> None:
        try:
            self._report()
        except Exception:  # a failed report does not end the service
            LOG.exception("Writing the Guru Meditation report failed")

    def _wake(self) -> None:
        if self._write_end is not None:
            try:
                os.write(self._write_end, b"\0")
            except BlockingIOError:
                pass  # the pipe is full, so the main thread wakes up anyway


def hold_signals() -> None:
    """Let signals wait until a service handles them, as the launcher would end the process.

    Threads that are started meanwhile never take them.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def report_fatal(error: BaseException) -> int:
    """Log why the process ends; return its exit code."""
    if isinstance(error, NEEDS_OPERATOR):
        LOG.critical("%s", error)
        return EXIT_CONFIG
    if (exhaustion := find_exhaustion(error)) is not None:
        LOG.critical("%s", exhaustion)
        return EXIT_FAILED
    LOG.critical("Unexpected error; ending the process", exc_info=error)
    return EXIT_FAILED


def _log_dead_thread(arguments: threading.ExceptHookArgs) -> None:
    name = "a thread" if arguments.thread is None else arguments.thread.name
    LOG.critical("Thread %s died", name, exc_info=arguments.exc_value)


def _is_no_advice(record: logging.LogRecord) -> bool:
    """Return whether a record is not the warning, at each start, that nothing is forked."""
    return not str(record.msg).startswith("no_fork=True")


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
