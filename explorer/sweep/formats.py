"""Fast import of jsonschema: without the grammar of international URIs. Import this before nbformat or papermill.

Where the package `rfc3987_syntax` is installed (JupyterLab brings it), jsonschema compiles that grammar when it is
imported, which takes 2 s, more than torch. Notebook schemas have no such format. jsonschema treats the package as
optional, so this module hides it during the import.
"""

import sys

OPTIONAL = "rfc3987_syntax"

if "jsonschema" not in sys.modules and OPTIONAL not in sys.modules:
    sys.modules[OPTIONAL] = None  # pyright: ignore[reportArgumentType]  # an import of it now raises ImportError
    try:
        import jsonschema  # noqa: F401
    finally:
        del sys.modules[OPTIONAL]
