"""The type of the `make_roots` fixture."""

from collections.abc import Callable

from nodetracker.virt.host.roots import Roots

MakeRoots = Callable[..., Roots]
