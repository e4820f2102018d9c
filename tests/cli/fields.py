# SPDX-License-Identifier: Apache-2.0
"""The fields of what `viaduct bench` writes as JSON."""


def names_of(value):
    """All names of fields in there, without the reasons'."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name != "reasons":
                yield from names_of(inner)
    if isinstance(value, list):
        for inner in value:
            yield from names_of(inner)
