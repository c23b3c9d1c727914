"""The programs. Importing this package keeps out what libraries import and nobody uses."""

import importlib
import sys
import threading
from types import ModuleType
from typing import Any

_LOADING = threading.Lock()


class _Deferred(ModuleType):
    """A module that is loaded when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        with _LOADING:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        vars(self).update(vars(module))  # for those who have imported this one
        return getattr(module, name)

    def iscoroutine(self, value: object) -> bool:
        """Return asyncio's answer; SQLAlchemy 2.1 takes this function when it is imported."""
        return bool(self.__getattr__("iscoroutine")(value))


# Some libraries use eventlet whenever it is installed; None makes its import fail.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
# wrapt 2.2 and SQLAlchemy 2.1 import asyncio, oslo.config 10.7 rfc3986, of which an agent uses
# nothing; they take 2.5 MiB.
for _name in ("asyncio", "rfc3986"):
    sys.modules.setdefault(_name, _Deferred(_name))
