"""The compute service: the manager's hooks in order, and the two threads that call it."""

import threading
import time
from collections.abc import Callable

from nodetracker.compute.loops import PeriodicLoop
from nodetracker.compute.manager import ComputeManager
from nodetracker.errors import ConfigError, IdentityError
from nodetracker.settings import AgentSettings

_FATAL = (ConfigError, IdentityError)


class ComputeService:
    """Runs one manager: audits in one thread, heartbeats in another.

    The first audit comes before anything else, heartbeats begin after it.
    """

    def __init__(self, settings: AgentSettings, manager: ComputeManager) -> None:
        self._settings = settings
        self._manager = manager
        self._started = threading.Event()
        self._on_fatal: Callable[[BaseException], None] | None = None
        self._audits = PeriodicLoop(
            "audits", manager.inventory_host, settings.audit_interval, self._fail, _FATAL
        )
        self._heartbeats = PeriodicLoop(
            "heartbeats", manager.beat, settings.report_interval, self._fail, _FATAL
        )

    def start(self, on_fatal: Callable[[BaseException], None]) -> None:
        """Begin in the background.

        Args:
            on_fatal: is called from a thread with the error that ends the service.
        """
        self._on_fatal = on_fatal
        threading.Thread(target=self._begin, name="start", daemon=True).start()

    def stop(self, timeout_seconds: float) -> bool:
        """End after a running audit or heartbeat; False when one still runs at the timeout."""
        deadline = time.monotonic() + timeout_seconds
        self._audits.stop()
        self._heartbeats.stop()
        has_started = self._started.wait(timeout_seconds)
        joined = [
            loop.join(deadline - time.monotonic()) for loop in (self._audits, self._heartbeats)
        ]
        self._manager.cleanup_host()
        return has_started and all(joined)

    def _begin(self) -> None:
        try:
            self._manager.init_host()
            self._manager.pre_start_hook()
            self._manager.beat()
            self._manager.post_start_hook()
        except Exception as error:  # whatever keeps the agent from starting ends the process
            self._fail(error)
        else:
            self._audits.start()
            self._heartbeats.start()
        finally:
            self._started.set()

    def _fail(self, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(error)
