"""Schemas of Nova's provider.yaml files, version 1; keys of later minor versions are ignored.

Source: ``nova/compute/provider_config.py``; bounds of amounts are placement's.
"""

from nodetracker.accounting.requests.fields import TEXT, Schema, integer, list_of, record

_LONGEST_NAME = 200
_LARGEST_RATIO = 3.4e38

DOCUMENT: Schema = {
    "description": "a mapping with the keys meta and providers",
    "type": "object",
    "required": ["meta"],
    "properties": {
        "meta": {
            "description": "a mapping with the key schema_version",
            "type": "object",
            "required": ["schema_version"],
            "properties": {
                "schema_version": {
                    "description": "a version 1.x as text, such as '1.0'",
                    "type": "string",
                    "pattern": r"^1\.(0|[1-9][0-9]*)$",
                }
            },
        },
        "providers": list_of({"description": "a mapping", "type": "object"}, "a list of providers"),
    },
}

_ADDITIONAL: Schema = {
    "description": "a mapping with the key additional",
    "type": "object",
}

PROVIDER: Schema = {
    "description": "a mapping",
    "type": "object",
    "required": ["identification"],
    "properties": {
        "identification": {
            "description": "either uuid or name",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {
                "uuid": TEXT,
                "name": {
                    **TEXT,
                    "description": f"a name of 1 to {_LONGEST_NAME} characters",
                    "maxLength": _LONGEST_NAME,
                },
            },
        },
        "inventories": {
            **_ADDITIONAL,
            "properties": {
                "additional": list_of(
                    {"description": "a mapping of resource classes", "type": "object"},
                    "a list of mappings of resource classes",
                )
            },
        },
        "traits": {
            **_ADDITIONAL,
            "properties": {"additional": list_of(TEXT, "a list of traits")},
        },
    },
}

INVENTORY: Schema = record(
    {
        "total": integer(1),
        "reserved": integer(),
        "min_unit": integer(1),
        "max_unit": integer(1),
        "step_size": integer(1),
        "allocation_ratio": {
            "description": f"a number above 0, at most {_LARGEST_RATIO:g}",
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": _LARGEST_RATIO,
        },
    },
    required=("total",),
)
