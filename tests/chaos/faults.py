"""Faults that a run can set, drawn from a seed: of processes, the database, the network and limits."""

import contextlib
import itertools
import random
import resource
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.fleet import Fleet, Host, Program
from tests.chaos.links import State

CLOCKS = {"an hour ahead": (3600.0, 0.0), "an hour behind": (-3600.0, 0.0), "drifting": (0.0, 5.0)}
"""What a clock is off by, and by how much more after each second."""


@dataclass(frozen=True)
class Fault:
    """A fault that lasts from `begin` to `end`.

    Attributes:
        target: what it is of; two faults at a time are of different targets.
        end: None = it is over at once.
    """

    kind: str
    target: str
    begin: Callable[[], object]
    end: Callable[[], object] | None


Draw = Callable[[Fleet, random.Random], Fault]


def _of_program(
    kind: str, begin: Callable[[Program], object], end: Callable[[Program], object]
) -> Draw:
    def draw(fleet: Fleet, choices: random.Random) -> Fault:
        program = choices.choice(fleet.programs)
        return Fault(kind, program.name, lambda: begin(program), lambda: end(program))

    return draw


def _kill_all(fleet: Fleet, choices: random.Random) -> Fault:
    """Kill all of a kind at once."""
    programs = choices.choice((fleet.apis, fleet.conductors))
    return Fault(
        "all killed", programs[0].name,
        lambda: [program.end() for program in programs],
        lambda: [program.start() for program in programs],
    )  # fmt: skip


def _start_again(fleet: Fleet, program: Program) -> None:
    host = next((host for host in fleet.hosts if host.agent is program), None)
    (program if host is None else _Agent(host)).start()


class _Agent:
    def __init__(self, host: Host) -> None:
        self.start = host.start_agent


def _kill(fleet: Fleet, choices: random.Random) -> Fault:
    program = choices.choice(fleet.programs)
    return Fault("killed", program.name, program.end, lambda: _start_again(fleet, program))


def _of_database(
    kind: str, begin: Callable[[Fleet], object], end: Callable[[Fleet], object] | None
) -> Draw:
    return lambda fleet, choices: Fault(
        f"database {kind}",
        "database",
        lambda: begin(fleet),
        None if end is None else lambda: end(fleet),
    )


def _free_disk(fleet: Fleet) -> None:
    process = fleet.server.process
    assert process.disk is not None
    process.disk.free()
    if psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE:
        process.kill()  # a server that ended for want of room
        fleet.server.start()


def _of_links(state: State) -> Draw:
    """Of one link, or of all that a program has."""

    def draw(fleet: Fleet, choices: random.Random) -> Fault:
        program = choices.choice([item for item in fleet.programs if item.links])
        names = program.links if choices.random() < 0.5 else [choices.choice(program.links)]
        return Fault(
            f"network {state}", program.name,
            lambda: fleet.links.set(names, state),
            lambda: fleet.links.set(names, State.OPEN),
        )  # fmt: skip

    return draw


def _of_database_links(state: State) -> Draw:
    """Of everybody's links to the database."""

    def draw(fleet: Fleet, choices: random.Random) -> Fault:
        names = [name for name in fleet.links.ports if name.endswith("-database")]
        return Fault(
            f"network {state}", "database",
            lambda: fleet.links.set(names, state),
            lambda: fleet.links.set(names, State.OPEN),
        )  # fmt: skip

    return draw


def _of_limit(kind: str, number: int, measure: Callable[[int], int]) -> Draw:
    """Limit a program to what it has."""

    def draw(fleet: Fleet, choices: random.Random) -> Fault:
        program = choices.choice(fleet.programs)
        pids: list[tuple[int, tuple[int, int]]] = []

        def begin() -> None:
            program.may_end = True
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, AssertionError):
                pid = program.pid
                limits = resource.prlimit(pid, number)
                resource.prlimit(pid, number, (measure(pid), limits[1]))
                pids.append((pid, limits))

        def end() -> None:
            for pid, limits in pids:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, number, limits)
            program.look_after()
            program.may_end = False

        return Fault(kind, program.name, begin, end)

    return draw


def _count_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _measure_memory(pid: int) -> int:
    return psutil.Process(pid).memory_info().vms + 2**20


def _fill_disk(fleet: Fleet, choices: random.Random) -> Fault:
    program = choices.choice([item for item in fleet.programs if item.disk is not None])
    assert program.disk is not None
    return Fault("state and log full", program.name, program.disk.fill, program.disk.free)


def _shift_clock(fleet: Fleet, choices: random.Random) -> Fault:
    program = choices.choice([item for item in fleet.programs if item.clock is not None])
    clock, name = program.clock, choices.choice(list(CLOCKS))
    assert clock is not None
    has_begun, is_over = threading.Event(), threading.Event()

    def shift() -> None:
        first, more = CLOCKS[name]
        for seconds in itertools.count():
            clock.write_text(str(first + more * seconds))
            has_begun.set()
            if is_over.wait(1):
                break
        clock.write_text("0")

    def begin() -> None:
        threading.Thread(target=shift, daemon=True).start()
        has_begun.wait()

    return Fault(f"clock {name}", program.name, begin, is_over.set)


def _of_host(
    kind: str,
    begin: Callable[[Fleet, Host], object],
    end: Callable[[Fleet, Host], object] | None = None,
    step: int = 1,
) -> Draw:
    """Of a host, or of one with a database of its own (step 2)."""

    def draw(fleet: Fleet, choices: random.Random) -> Fault:
        host = choices.choice(fleet.hosts[::step])
        return Fault(
            kind,
            host.agent.name,
            lambda: begin(fleet, host),
            None if end is None else lambda: end(fleet, host),
        )

    return draw


def list_faults(fleet: Fleet) -> dict[str, list[Draw]]:
    """Return what can be set here, by what it is of."""
    found: dict[str, list[Draw]] = {
        "process": [_kill, _kill, _kill_all, _of_program("frozen", Program.freeze, Program.thaw)],
        "database": [
            _of_database("restarted", lambda f: f.server.stop(), lambda f: f.server.start()),
            _of_database(
                "killed", lambda f: f.server.process.cut_power(), lambda f: f.server.start()
            ),
            _of_database(
                "frozen", lambda f: f.server.process.freeze(), lambda f: f.server.process.thaw()
            ),
            _of_database(
                "read-only",
                lambda f: f.server.set_read_only(True),
                lambda f: f.server.set_read_only(False),
            ),
            _of_database("connections killed", lambda f: f.server.kill_connections(), None),
            *(
                _of_database_links(state)
                for state in (State.CUT, State.HELD, State.DEAF, State.HALF)
            ),
        ],
        "network": [_of_links(state) for state in State if state is not State.OPEN],
        "limit": [
            _of_limit("descriptors", resource.RLIMIT_NOFILE, _count_descriptors),
            _of_limit("memory", resource.RLIMIT_AS, _measure_memory),
            _shift_clock,
        ],
        "host": [
            _of_host("renamed", lambda f, host: f.rename(host)),
            _of_host("purged", lambda f, host: f.purge(host)),
            _of_host(
                "replaced", lambda f, host: f.replace(host), lambda f, host: f.thaw_former(host), 2
            ),
        ],
    }
    if fleet.disks:
        found["limit"].append(_fill_disk)
    if fleet.server.process.disk is not None:
        found["database"].append(_of_database("full", _fill_database, _free_disk))
    return found


def _fill_database(fleet: Fleet) -> None:
    assert fleet.server.process.disk is not None
    fleet.server.process.disk.fill()


def list_missing(fleet: Fleet) -> list[str]:
    """Return what cannot be set here, and why."""
    found = [
        "the clock of the database",
        "a limit of threads alone (that of memory stops new threads as well)",
        "packets that the kernel loses (links are late, or reset)",
    ]
    if not fleet.disks:
        found.append("full disks: only root may mount them")
    return found


def draw_faults(fleet: Fleet, choices: random.Random) -> Sequence[Fault]:
    """Return one fault, or two of different targets."""
    faults = list(list_faults(fleet).values())
    first, second = (choices.choice(choices.choice(faults))(fleet, choices) for _ in range(2))
    return [first] if choices.random() < 0.5 or second.target == first.target else [first, second]
