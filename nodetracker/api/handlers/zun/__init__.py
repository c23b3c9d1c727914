"""Resources below ``/container/v1``, in the form of Zun's API."""
