"""Choose the backend of oslo.service, before its other modules and oslo.messaging are imported."""

from oslo_service import backend


def choose_threads() -> None:
    """Choose threads; otherwise the first such import chooses eventlet, or fails without it."""
    backend.init_backend(backend.BackendType.THREADING)
