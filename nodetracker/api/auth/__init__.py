"""Authentication and authorization of requests to the REST API."""
