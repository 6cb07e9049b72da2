"""The OpenAPI 3.1 document of the studio, made from the table of actions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from pydantic.json_schema import models_json_schema

import automl
from automl.actions import OPERATIONS

from .bodies import answer_of, body_of
from .tokens import Role

_REFERENCE: Final = "#/components/schemas/{model}"
_ERRORS: Final = {
    "400": "The body is malformed, or a value is wrong.",
    "401": "The token is missing or unknown.",
    "403": "The token's role may not do this.",
    "404": "There is no such sweep.",
    "409": "The state of the trial or sweep does not allow it: the lease is over, for example.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "Too many requests: wait 10 s.",
    "503": "The store cannot be written, or too many requests wait.",
    "504": "No answer in time.",
}
_READS: Final = {
    "/api/sweeps": ("list_sweeps", "The JSON of `automl list --json`."),
    "/api/sweeps/{sweep}": ("read_sweep", "A sweep: its state, best trial, budget and space."),
    "/api/sweeps/{sweep}/trials": ("list_trials", "The JSON of `automl trials SWEEP --json`."),
    "/api/sweeps/{sweep}/trials/{trial}": ("read_trial", "A trial with its curves and events."),
}


@cache
def document() -> dict[str, Any]:
    """The document, as JSON data."""
    pairs = [(made(name), "validation") for name in OPERATIONS for made in (body_of, answer_of)]
    _, definitions = models_json_schema(pairs, ref_template=_REFERENCE)  # type: ignore[arg-type]
    schemas = {
        **definitions["$defs"],
        "Error": {
            "type": "object",
            "description": "What is wrong, which value, and what to do.",
            "properties": {"error": {"type": "string"}},
            "required": ["error"],
        },
    }
    paths: dict[str, Any] = {path: {"get": _read(path)} for path in _READS}
    paths |= {one.route: {"post": _act(name)} for name, (_, one) in OPERATIONS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "automl studio",
            "version": automl.__version__,
            "description": "Read the sweeps of a store, act on them, and run their trials by "
            "programs of your own. The header is `Authorization: Bearer TOKEN`; "
            "`automl studio --token agent` prints the token of agents.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                role.value: {"type": "http", "scheme": "bearer", "description": f"Of the {role}."}
                for role in Role
            },
        },
    }


def _act(name: str) -> dict[str, Any]:
    action, operation = OPERATIONS[name]
    return {
        "operationId": name,
        "summary": operation.help,
        "tags": [f"for the {action.role}"],
        "security": [{action.role: []}],
        "parameters": _parameters(operation.route),
        "requestBody": {"required": True, "content": _json(body_of(name).__name__)},
        "responses": _responses("Done.", _json(answer_of(name).__name__), _ERRORS),
    }


def _read(path: str) -> dict[str, Any]:
    name, words = _READS[path]
    return {
        "operationId": name,
        "summary": words,
        "tags": ["for everybody"],
        "security": [{role.value: []} for role in Role],
        "parameters": _parameters(path),
        "responses": _responses(
            "Found.", {"application/json": {"schema": {}}}, ("401", "404", "429", "503")
        ),
    }


def _responses(words: str, content: dict[str, Any], errors: Iterable[str]) -> dict[str, Any]:
    refused = {one: {"description": _ERRORS[one], "content": _json("Error")} for one in errors}
    return {"200": {"description": words, "content": content}, **refused}


def _parameters(path: str) -> list[dict[str, Any]]:
    kinds: dict[str, Any] = {
        "sweep": {"type": "string"},
        "trial": {"type": "integer", "minimum": 0},
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in kinds.items()
        if f"{{{name}}}" in path
    ]


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=schema)}}}
