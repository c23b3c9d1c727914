"""Resources below ``/v1``, nodetracker's own API."""
