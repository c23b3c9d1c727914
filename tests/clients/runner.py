"""Run commands of OpenStack's clients, each in a fork of this process, which has imported them.

It runs in the clients' environment, without nodetracker. Each line of its input is a JSON object
with ``program``, ``arguments`` and ``environ``; each line of its output one with ``code``,
``output`` and ``errors``. The program "python" executes its argument. Starting a client takes a
second or more, a fork some milliseconds.
"""

import contextlib
import gc
import importlib
import inspect
import json
import os
import signal
import sys
import tempfile
import traceback

TIMEOUT_SECONDS = 60
MAINS = {
    "openstack": "openstackclient.shell",
    "nova": "novaclient.shell",
    "zun": "zunclient.shell",
}
"""Program -> module of its function ``main``."""


def main() -> None:
    """Answer requests until the input ends."""
    modules = {}
    for program, name in MAINS.items():
        with contextlib.suppress(ImportError):  # an environment may have one client only
            modules[program] = importlib.import_module(name)
    modules["python"] = None
    with contextlib.suppress(ImportError):
        importlib.import_module("openstack.compute.v2._proxy")
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run(modules[request["program"]], **request)), flush=True)


def run(module, program: str, arguments: list, environ: dict) -> dict:
    """Run one command; return its exit code and what it printed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.environ.update(environ)
            os._exit(call(module, program, arguments))
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode())
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "output": texts[0], "errors": texts[1]}


def call(module, program: str, arguments: list) -> int:
    """Return the exit code of a command in this process."""
    signal.alarm(TIMEOUT_SECONDS)
    sys.argv = [program, *arguments]
    try:
        if module is None:
            exec(arguments[0], {"__name__": "__main__"})
            code = 0
        else:
            has_arguments = inspect.signature(module.main).parameters  # nova 9 reads sys.argv
            code = module.main(arguments) if has_arguments else module.main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code or 0


if __name__ == "__main__":
    main()
