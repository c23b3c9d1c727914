"""Describe nodetracker's own API as an OpenAPI 3.1 document, made from the route table."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from nodetracker.accounting.schemas import Schema
from nodetracker.api.family import Family, family_of
from nodetracker.api.fields import EXPLANATIONS
from nodetracker.api.route import Operation, Route

_PARAMETER = re.compile(r"{(\w+)}")

ERROR: Schema = {
    "type": "object",
    "required": ["errors"],
    "properties": {
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["status", "code", "title", "detail", "request_id"],
                "properties": {
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "title": {"type": "string"},
                    "detail": {"type": "string"},
                    "request_id": {"type": "string"},
                    "reasons": {"type": "array", "items": {"type": "string"}},
                    "explanations": EXPLANATIONS,
                    "present": {
                        "description": "what is decided about a service that was changed meanwhile",
                        "type": "object",
                    },
                },
            },
        }
    },
}
"""The body of every error outside Nova's API."""

_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "wait=N, the seconds that the database may take (RFC 7240); at most 120",
    "schema": {"type": "string"},
}


def build_document(routes: Sequence[Route], version: str, url: str) -> dict[str, Any]:
    """Return the document.

    Args:
        version: of nodetracker.
        url: to which the paths are relative.
    """
    own = [route for route in routes if family_of(route.path) is Family.OWN]
    return {
        "openapi": "3.1.0",
        "info": {"title": "nodetracker", "version": version},
        "servers": [{"url": url}],
        "paths": {route.path: _describe_route(route) for route in own},
        "components": {
            "schemas": {"Error": ERROR},
            "parameters": {"Prefer": _PREFER},
            "responses": {"Error": _answer("an error", {"$ref": "#/components/schemas/Error"})},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
            },
        },
    }


def _describe_route(route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        method.lower(): _describe_operation(route.path, method, operations[0])
        for method, operations in route.methods.items()
    }
    described["parameters"] = [
        {"$ref": "#/components/parameters/Prefer"},
        *(
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(route.path)
        ),
    ]
    return described


def _describe_operation(path: str, method: str, operation: Operation) -> dict[str, Any]:
    handler = operation.handler
    text = " ".join((handler.__doc__ or "").partition("\n\n")[0].split())
    responses: dict[str, Any] = {
        str(status): _answer(HTTPStatus(status).phrase, schema)
        for status, schema in operation.answers.items()
    }
    described: dict[str, Any] = {
        "operationId": _name(path, method),
        "summary": text.rstrip("."),
        "parameters": _list_parameters(operation.query),
        "responses": responses | {"default": {"$ref": "#/components/responses/Error"}},
        "security": [] if operation.is_open else [{"basic": []}, {"token": []}],
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return described


def _name(path: str, method: str) -> str:
    words = [word for word in re.split(r"\W+", path.removeprefix("/v1")) if word]
    return "_".join([method.lower(), *words])


def _list_parameters(query: Schema) -> list[dict[str, Any]]:
    required = query.get("required", ())
    properties: Mapping[str, Schema] = query["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "description": schema.get("description", ""),
            "required": name in required,
            "schema": schema,
        }
        for name, schema in properties.items()
    ]


def _answer(description: str, schema: Schema | None) -> dict[str, Any]:
    if schema is None:
        return {"description": description}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
