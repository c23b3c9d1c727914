"""Resources below ``/v2.1``, in the form of Nova's API."""
