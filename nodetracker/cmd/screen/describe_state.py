"""Draw the state of a node and of its agent, as lines with a label."""

from collections.abc import Iterable
from datetime import datetime

from nodetracker.accounting.reports.description import NodeDescription
from nodetracker.accounting.reports.services import status_of
from nodetracker.accounting.reports.values import NONE, render_age
from nodetracker.cmd.screen.lines import Line, Piece, Style
from nodetracker.cmd.screen.states import draw_state, word_of
from nodetracker.cmd.screen.terminal import Terminal
from nodetracker.cmd.screen.text import pad_text, safe_text, wrap_text
from nodetracker.model.service import ServiceRecord

_LABEL = 12


def draw_labeled(
    fields: Iterable[tuple[str, str]], terminal: Terminal, style: Style = Style.PLAIN
) -> list[Line]:
    """Return a line for each field that has a text, or several if it is long."""
    lines: list[Line] = []
    room = max(20, terminal.width - _LABEL - 2)
    for label, text in fields:
        if not text:
            continue
        for number, part in enumerate(wrap_text(safe_text(text, terminal.has_unicode), room)):
            start = pad_text("" if number else label, _LABEL)
            lines.append((Piece(start, Style.DIM), Piece(part, style)))
    return lines


def draw_state_section(described: NodeDescription, terminal: Terminal) -> list[Line]:
    """Return the lines of the section State."""
    record, service = described.record, described.service
    maintenance = service is not None and service.maintenance
    status = status_of(service)
    word = word_of(described.state, status, maintenance)
    start = Piece(pad_text("Node", _LABEL), Style.DIM)
    name = record.nodename if record.nodename == record.host else f"{record.host} {record.nodename}"
    node = Piece(f"{safe_text(name, terminal.has_unicode)}  ", Style.TITLE)
    also = [text for text, kind, is_set in (
                (status, status, True), ("in maintenance", "maintenance", maintenance))
            if is_set and kind != word]  # fmt: skip
    rest = Piece(", ".join(["", *also]))
    lines: list[Line] = [(start, node, *draw_state(word, terminal), rest)]
    if service is not None and service.disabled:
        fields = [
            ("Reason", service.disabled_reason or "no reason given"),
            ("Disabled", _render_disabling(service, described.now)),
        ]
        lines += draw_labeled(fields, terminal, Style.WARNING)
    return lines + draw_labeled([("UUID", record.uuid), *_list_fields(described)], terminal)


def _render_disabling(service: ServiceRecord, now: datetime) -> str:
    at, by = service.disabled_at, service.disabled_by
    since = f"{render_age((now - at).total_seconds())} ago" if at else ""
    return " ".join(filter(None, (since, by and f"by {by}")))


def _list_fields(described: NodeDescription) -> list[tuple[str, str]]:
    record, service, now = described.record, described.service, described.now
    age = described.audit_age_seconds
    read = "never read" if age is None else f"{render_age(age)} ago"
    if service is None:
        return [("Agent", "the host has no agent"), ("Last read", read)]
    seen = service.last_seen_up
    heartbeat = "never" if seen is None else f"{render_age((now - seen).total_seconds())} ago"
    forced = ", down by an administrator" if service.forced_down else ""
    run = service.incarnation
    held = service.ended_epoch != service.epoch
    holder = f"{run.agent_id}, process {run.pid}, epoch {service.epoch}"
    booted = record.values.booted_at
    uptime = NONE if booted is None else render_age((now - booted).total_seconds())
    load = service.last_audit.get("load_average")
    loads = f", load {' '.join(f'{value:.2f}' for value in load)}" if load else ""
    is_up = described.state == "up"
    return [
        ("Last read", f"{read}; heartbeat {heartbeat}{forced}"),
        (
            "Agent",
            f"version {service.version}, {holder}" if held else "ended; nobody holds the host",
        ),
        ("Uptime", f"{uptime}{loads}" if is_up else ""),
    ]
