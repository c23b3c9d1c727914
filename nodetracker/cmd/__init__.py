"""The programs. Importing this package keeps eventlet out of every one of them."""

import sys

# Some libraries use eventlet whenever it is installed; None makes its import fail.
sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
