# nodetracker-admission
"""Ask nodetracker's agent whether a guest may start. It is run by libvirt's hook and by systemd.

    ask.py SOCKET prepare|migrate|restore|start   the domain's XML is on standard input
    ask.py SOCKET release                   as above; reports it and waits for no answer
    ask.py SOCKET wait                      until the agent answers

The exit status is 77, with the reason on standard error, if the agent refuses, and 0 if it does
not. Any other one means that there is no answer. Half of its time is that of its imports.
"""

import json
import socket
import sys
import time

REFUSED = 77
MAX_BYTES = 4 * 2**20
TIMEOUT_SECONDS = 2.0


def main(path: str, operation: str) -> int:
    """Carry out one operation; returns the exit status."""
    if operation == "wait":
        wait(path)
        return 0
    question: dict[str, object] = {"driver": "libvirt"}
    question["document"] = sys.stdin.buffer.read().decode()
    try:
        if operation == "release":
            send(path, question | {"ask": "gone"}).close()
            return 0
        answer = ask(path, question | {"ask": "start", "operation": operation})
    except OSError as error:
        return report(f"{path}: {error.strerror or error}", 1)
    if answer["outcome"] == "refused":
        return report(str(answer["reason"]), REFUSED)
    return report(str(answer["reason"]), 1) if answer["outcome"] == "unavailable" else 0


def report(reason: str, status: int) -> int:
    """Print a reason for people, in one line; returns the exit status."""
    line = "".join(sign if sign.isprintable() else " " for sign in reason)
    print(f"nodetracker: {line}", file=sys.stderr)  # noqa: T201 - of a program
    return status


def wait(path: str) -> None:
    """Return when the agent answers; whoever calls it limits the time."""
    while True:
        try:
            ask(path, {"ask": "list"})
        except OSError:
            time.sleep(0.2)
        else:
            return


def ask(path: str, question: dict[str, object]) -> dict[str, object]:
    """Return the agent's answer to a question.

    Raises:
        OSError: the socket does not exist, nothing answers, or the agent has too many questions.
    """
    with send(path, question) as door, door.makefile("rb") as lines:
        line = lines.readline(MAX_BYTES)
    try:
        answer = json.loads(line)
    except ValueError:
        raise OSError("no answer") from None
    return dict(answer)


def send(path: str, question: dict[str, object]) -> socket.socket:
    """Send a question; returns the connection, on which the answer comes.

    Raises:
        OSError: the socket does not exist, or nothing accepts connections.
    """
    door = socket.socket(socket.AF_UNIX)
    # With a timeout the connection is made without waiting: an error if the agent's queue is full.
    door.settimeout(TIMEOUT_SECONDS)
    try:
        door.connect(path)
        door.sendall(json.dumps(question).encode() + b"\n")
    except OSError:
        door.close()
        raise
    return door


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
