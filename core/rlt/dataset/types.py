"""A dataset type is a name and a JSON Schema of one row.

Nothing here knows the types that ship with rlt: whoever registers a schema gets the reader, the
checker and the documentation with it. What a schema cannot say is annotated in it (see
`rlt_schemas`), so the rules about texts work for any type that says which properties are texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlt.dataset.schema_check import validator
from rlt.dataset.spelling import closest
from rlt.errors import UsageError
from rlt.types import JSON


@dataclass(frozen=True)
class DatasetType:
    """What a row of one kind looks like."""

    name: str
    schema: JSON
    summary: str = ""

    @cached_property
    def validator(self) -> Any:
        """The `jsonschema` validator, whose word is final; compiled when first asked for.

        :raises UsageError: when the schema is not one.
        """
        return validator(self.schema, self.name)

    @cached_property
    def properties(self) -> Mapping[str, JSON]:
        """The declared top-level keys."""
        return dict(self.schema.get("properties", {}))

    @cached_property
    def required(self) -> frozenset[str]:
        """The keys that no row may lack."""
        return frozenset(self.schema.get("required", ()))

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The keys that hold text, each with its kind: `prompt` or `completion`."""
        found = ((key, value.get("x-rlt-text")) for key, value in self.properties.items())
        return {key: kind for key, kind in found if kind}

    @cached_property
    def prompt(self) -> str | None:
        """The key of the prompt, if the type has one."""
        return next((key for key, kind in self.texts.items() if kind == "prompt"), None)

    @cached_property
    def different(self) -> tuple[tuple[str, str], ...]:
        """Pairs of keys whose values must not be equal."""
        return tuple((first, second) for first, second in self.schema.get("x-rlt-different", ()))


class DatasetTypes:
    """The registry; what the hook `register_dataset_types` is given to call."""

    def __init__(self) -> None:
        """Start with none: rlt's own come in by the same hook as a plugin's."""
        self._types: dict[str, DatasetType] = {}

    def __call__(self, name: str, schema: Mapping[str, Any], *, summary: str = "") -> None:
        """Add a type.

        :raises UsageError: when another schema has the name, or this is not an object's schema.
        """
        if not isinstance(schema, Mapping):
            raise UsageError(f"dataset type {name!r}: its schema must be a mapping, not {schema!r}")
        known = self._types.get(name)
        if known is not None:
            raise UsageError(
                f"dataset type {name!r} is registered twice: as {_label(known.schema)} "
                f"and as {_label(schema)}; rename one"
            )
        title = str(schema.get("title", ""))
        self._types[name] = DatasetType(name, dict(schema), summary or title)

    def __getitem__(self, name: str) -> DatasetType:
        """Return a type by name; a `UsageError` names the known ones."""
        if name not in self._types:
            close = closest(name, self._types)
            hint = f"; did you mean {close!r}?" if close else ""
            known = ", ".join(self._types) or "none"
            raise UsageError(f"no dataset type is called {name!r}{hint} (known: {known})")
        return self._types[name]

    def __iter__(self) -> Iterator[DatasetType]:
        """Go through the types in the order they were registered."""
        return iter(self._types.values())

    def __len__(self) -> int:
        """Count them."""
        return len(self._types)

    def names(self) -> tuple[str, ...]:
        """The names, in the order they were registered."""
        return tuple(self._types)


def _label(schema: Mapping[str, Any]) -> str:
    return repr(schema.get("$id") or schema.get("title") or "a schema without $id")
