"""Builders of capabilities documents."""

from collections.abc import Sequence


def cpu_row(number: int, socket: int, core: int, siblings: str) -> str:
    return (
        f"<cpu id='{number}' socket_id='{socket}' die_id='0' core_id='{core}' "
        f"siblings='{siblings}'/>"
    )


def cell(
    number: int,
    cpus: Sequence[int] = (),
    memory_kb: int | None = 1048576,
    threads: int = 1,
    socket: int = 0,
    pages: dict[int, int] | None = None,
    distances: dict[int, int] | None = None,
    offline: Sequence[int] = (),
) -> str:
    rows = []
    for index, cpu in enumerate(cpus):
        first = index // threads * threads
        group = cpus[first : first + threads]
        rows.append(cpu_row(cpu, socket, index // threads, ",".join(map(str, group))))
    rows += [f"<cpu id='{cpu}'/>" for cpu in offline]
    parts = [f"<memory unit='KiB'>{memory_kb}</memory>"] if memory_kb is not None else []
    parts += [
        f"<pages unit='KiB' size='{size}'>{total}</pages>" for size, total in (pages or {}).items()
    ]
    if distances:
        siblings = "".join(
            f"<sibling id='{other}' value='{value}'/>" for other, value in distances.items()
        )
        parts.append(f"<distances>{siblings}</distances>")
    parts.append(f"<cpus num='{len(rows)}'>{''.join(rows)}</cpus>")
    return f"<cell id='{number}'>{''.join(parts)}</cell>"


def capabilities(*cells: str, uuid: str = "", more: str = "") -> str:
    topology = (
        f"<topology><cells num='{len(cells)}'>{''.join(cells)}</cells></topology>" if cells else ""
    )
    return f"""<capabilities>
  <host>{f"<uuid>{uuid}</uuid>" if uuid else ""}
    <cpu><arch>x86_64</arch><model>Skylake</model><vendor>Intel</vendor>
      <feature name='vmx'/><feature name='aes'/></cpu>
    {topology}
  </host>{more}
</capabilities>"""
