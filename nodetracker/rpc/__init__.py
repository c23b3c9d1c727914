"""Calls and notifications over a message broker; the only package that imports oslo.messaging."""
