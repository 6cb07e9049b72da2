"""The OpenAPI 3.1 document of the studio, made from the table of verbs."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from .tokens import Role
from .verbs import VERBS, HttpVerb

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
    models = [model for verb in VERBS for model in (verb.body, verb.answer)]
    pairs = [(model, "validation") for model in dict.fromkeys(models)]
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
    for verb in VERBS:
        paths[verb.route] = {"post": _operation(verb)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "automl studio",
            "version": _version(),
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


def _operation(verb: HttpVerb) -> dict[str, Any]:
    answers = {"200": {"description": "Done.", "content": _json(verb.answer.__name__)}}
    errors = {
        status: {"description": words, "content": _json("Error")}
        for status, words in _ERRORS.items()
    }
    return {
        "operationId": verb.name,
        "summary": verb.words,
        "tags": sorted(f"for the {role}" for role in verb.roles),
        "security": [{role.value: []} for role in sorted(verb.roles)],
        "parameters": _parameters(verb.route),
        "requestBody": {"required": True, "content": _json(verb.body.__name__)},
        "responses": answers | errors,
    }


def _read(path: str) -> dict[str, Any]:
    name, words = _READS[path]
    statuses = {key: _ERRORS[key] for key in ("401", "404", "429", "503")}
    errors = {
        status: {"description": words, "content": _json("Error")}
        for status, words in statuses.items()
    }
    anything: dict[str, Any] = {"application/json": {"schema": {}}}
    return {
        "operationId": name,
        "summary": words,
        "tags": ["for everybody"],
        "security": [{role.value: []} for role in Role],
        "parameters": _parameters(path),
        "responses": {"200": {"description": "Found.", "content": anything}} | errors,
    }


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


def _version() -> str:
    try:
        return version("automl")
    except PackageNotFoundError:  # run from a folder
        return "0"
