"""The type of the `make_roots` fixture, for the tests that take it."""

from collections.abc import Callable

from nodetracker.host.roots import Roots

MakeRoots = Callable[..., Roots]
