"""Services of oslo.service: in processes of their own, as they handle signals."""

import logging
import subprocess
import sys
import threading
import time

import pytest
from oslo_service import periodic_task

from nodetracker.model.errors import ConfigError, StoreError, StoreUnavailableError
from nodetracker.process import service
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks
from nodetracker.process.outage import OutageLog
from nodetracker.process.service import Service
from tests.programs import wait_until

PROGRAM = """
import gc, logging, os, signal, sys, threading, time
import nodetracker.cmd
from oslo_config import cfg
from nodetracker.process.loops import WHEN_DUE, PeriodicTasks
from nodetracker.process.service import Service, service
from nodetracker.model.errors import IdentityError
from oslo_service import periodic_task

class Service(Service):
    def begin(self):
        self.notify_ready()

    def end(self):
        return True

{0}
os._exit({1}(1).run(cfg.ConfigOpts(), print, print))
"""

FAILING = """
class Failing(Service):
    def begin(self):
        self.fail(OSError("the cause"))

    def end(self):
        raise RuntimeError("the consequence")
"""


def run(definition: str, name: str = "Service") -> "subprocess.CompletedProcess[str]":
    program = PROGRAM.format(definition, name)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )


def test_why_a_process_ends_is_logged_even_if_it_cannot_stop() -> None:
    done = run(FAILING, "Failing")
    assert done.returncode == 1
    assert "ending the process" in done.stderr
    assert done.stderr.index("OSError: the cause") < done.stderr.index("the consequence")


def test_collections_do_not_traverse_what_a_program_has_loaded() -> None:
    done = run(
        FAILING.replace("self.fail(", "print(gc.get_freeze_count(), flush=True); self.fail("),
        "Failing",
    )
    assert int(done.stdout.split()[0]) > 5000


LAUNCHING = """
class Launching(logging.Filter):
    def filter(self, record):  # what the launcher logs after it has set its own handlers
        os.kill(os.getpid(), signal.{0})
        return True

logging.basicConfig(level=logging.INFO)
logging.getLogger(service.launch.__module__).addFilter(Launching())
"""


def test_a_signal_during_the_launch_is_not_the_launcher_s() -> None:
    done = run(LAUNCHING.format("SIGTERM"))
    assert (done.returncode, done.stderr) == (0, "INFO:nodetracker.process.service:Stopped\n")


def test_a_hangup_during_the_launch_reloads() -> None:
    definition = (
        LAUNCHING.format("SIGHUP")
        + """
class Reloading(Service):
    def reset(self):
        super().reset()
        os.kill(os.getpid(), signal.SIGTERM)
"""
    )
    done = run(definition, "Reloading")
    assert done.returncode == 0
    assert "Configuration reloaded" in done.stderr


def test_nothing_is_forked_and_nothing_is_logged_of_it() -> None:
    definition = """
logging.basicConfig(level=logging.INFO)
own = os.getpid()

class Single(Service):
    def begin(self):
        main = threading.current_thread() is threading.main_thread()
        children = open(f"/proc/{own}/task/{own}/children").read()
        print(os.getpid() == own, main, children == "", flush=True)
        os.kill(own, signal.SIGINT)
"""
    done = run(definition, "Single")
    assert (done.returncode, done.stdout) == (0, "True True True\n")
    assert "no_fork" not in done.stderr


def test_what_is_fatal_in_a_periodic_task_is_the_exit_code() -> None:
    definition = """
class Tasks(PeriodicTasks):
    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def identify(self, context):
        raise IdentityError("not this host's")

class Refused(Service):
    fatal_errors = (IdentityError,)

    def begin(self):
        loop = self.add_tasks("tasks", Tasks(), 3600)
        loop.start(self.tg)
        loop.wake()
"""
    done = run(definition, "Refused")
    assert (done.returncode, done.stderr) == (78, "not this host's\n")


def test_a_timer_that_hangs_does_not_keep_a_process_from_ending() -> None:
    definition = """
class Hung(Service):
    def begin(self):
        self.entered = threading.Event()
        loop = self.add_timer("timer", self.hang, None)
        loop.start(self.tg)
        loop.wake()
        self.entered.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)

    def hang(self):
        self.entered.set()
        time.sleep(600)

    def end(self):
        return self.join_loops(time.monotonic() + 0.1)
"""
    done = run(definition, "Hung")
    assert done.returncode == 1
    assert "ending the process anyway" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "import nodetracker.bootstrap.agent",
        "import nodetracker.api.service",
        "import nodetracker.conductor.service",
        "from nodetracker.rpc.transport import import_library; import_library()",
    ],
)
def test_services_and_messaging_run_on_threads_without_eventlet(line: str) -> None:
    code = (
        "import nodetracker.cmd, sys\n"
        f"{line}\n"
        "from oslo_service import backend\n"
        "print(sys.modules['eventlet'], backend.get_backend_type())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None BackendType.THREADING\n"


def test_the_application_for_a_foreign_server_runs_no_service() -> None:
    code = (
        "import nodetracker.cmd.program, nodetracker.bootstrap.api, sys\n"
        "print([name for name in sys.modules if 'oslo_service' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class Ticking(Service):
    """A service whose timers the test starts."""

    fatal_errors = (ConfigError,)

    def begin(self) -> None:
        for loop in self.loops:
            loop.start(self.tg)
            loop.wake()

    def end(self) -> bool:
        for loop in self.loops:
            loop.stop()
        return self.join_loops(time.monotonic() + 30)


@pytest.fixture
def ticking():
    service = Ticking(1)
    yield service
    assert service.end()


def test_a_slow_timer_holds_neither_the_watchdog_nor_a_stop_up(ticking) -> None:
    entered, release = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        release.wait(60)

    ticking.add_timer("heartbeats", lambda: None, 3600)
    ticking.add_timer("purge", hang, 3600, is_slow=True)
    ticking.begin()
    assert entered.wait(30)
    began = time.monotonic()
    assert ticking.is_making_progress()
    assert ticking.end()
    assert time.monotonic() - began < 20
    release.set()


def test_a_fatal_error_of_a_timer_is_that_of_its_service(ticking) -> None:
    reached = threading.Event()

    def fail() -> None:
        reached.set()
        raise ConfigError("host: invalid")

    loop = ticking.add_timer("timer", fail, 3600)
    ticking.begin()
    assert reached.wait(30)
    assert loop.join(30)
    assert str(ticking.fatal) == "host: invalid"
    assert not ticking.is_making_progress()


def test_no_error_of_a_slow_timer_is_fatal(ticking) -> None:
    failed = threading.Semaphore(0)

    def fail() -> None:
        failed.release()
        raise ConfigError("placement: invalid")

    loop = ticking.add_timer("removals", fail, 0.01, is_slow=True)
    ticking.begin()
    assert all(failed.acquire(timeout=30) for _ in range(3))
    assert ticking.fatal is None
    loop.stop()
    assert loop.join(30)


class AwayTasks(PeriodicTasks):
    """Needs a database that is away for its first three runs."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.is_over = threading.Event()

    @periodic_task.periodic_task(spacing=WHEN_DUE, run_immediately=True)
    def sample(self, context: object = None) -> None:
        self.runs += 1
        if self.runs <= 3:
            raise StoreUnavailableError(f"not reached in attempt {self.runs}")
        if self.runs == 5:
            self.is_over.set()


@pytest.mark.parametrize("has_log", [True, False])
def test_an_outage_is_no_traceback_of_a_timer_that_needs_the_database(
    ticking, caplog, has_log
) -> None:
    caplog.set_level(logging.INFO, logger="nodetracker")
    tasks = AwayTasks()
    log = logging.getLogger("nodetracker.outages")
    outages = OutageLog("The database", StoreError, log) if has_log else None
    loop = ticking.add_tasks("trends", tasks, 0.01, is_slow=True, outages=outages)
    ticking.begin()
    assert tasks.is_over.wait(30)
    loop.stop()
    assert loop.join(30)
    assert not any(record.exc_info for record in caplog.records)
    first, *_, last = caplog.messages
    if has_log:
        assert [first, last] == caplog.messages
        assert first == "The database: not reached in attempt 1"
        assert last == "The database is back after 0 s"
    else:
        assert (first, last) == ("trends failed: not reached in attempt 1", "trends work again")


def test_an_outage_does_not_last_until_the_next_tick_of_a_slow_timer(
    ticking, caplog, monkeypatch
) -> None:
    caplog.set_level(logging.INFO, logger="nodetracker")
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    tasks = AwayTasks()
    outages = OutageLog("The database", StoreError, logging.getLogger("nodetracker.outages"))
    loop = ticking.add_tasks("tolerance", tasks, 3600, is_slow=True, outages=outages)
    loop.wake()
    ticking.begin()
    wait_until(lambda: len(caplog.messages) == 2)
    loop.stop()
    assert loop.join(30)
    assert tasks.runs == 4
    assert not outages.is_out
    first, last = caplog.messages
    assert first == "The database: not reached in attempt 1"
    assert last == "The database is back after 0 s"
