"""The JSON schema of the configuration, by which an editor completes and checks the file."""

from __future__ import annotations

from typing import Any

from app.config.model import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """
    Return the schema of the file.

    It knows each key by itself: what keys owe each other, and what a parser or a store makes of its options, only
    `winnow check` knows. No key is required, because it may stand in the environment.
    """
    found = Config.model_json_schema(by_alias=True)
    for section in (found, *found["$defs"].values()):
        section.pop("required", None)
    return {"$schema": DIALECT} | found | {"title": "Winnow"}
