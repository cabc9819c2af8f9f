"""The JSON schema of the configuration file, for editors."""

from __future__ import annotations

from typing import Any

from app.config.model import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """
    Return the schema of the file.

    It covers single keys. Only `winnow check` knows the rules between keys and the options of parsers and stores. No
    key is required, because it may be set in the environment.
    """
    found = Config.model_json_schema(by_alias=True)
    for section in (found, *found["$defs"].values()):
        section.pop("required", None)
    return {"$schema": DIALECT} | found | {"title": "Winnow"}
