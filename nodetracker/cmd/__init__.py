"""The programs. Importing this package prevents eventlet from being imported by any of them."""

import sys

# Some libraries use eventlet whenever it is installed; None makes its import fail.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
