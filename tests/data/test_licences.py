"""Declared licences: every way of saying one, what is mixed, and what is not understood."""

from pathlib import Path

import pytest

from explorer.data.licences import FAMILIES, MIXED, PATHS, Family, declared
from explorer.document import read_document
from explorer.provenance.taxonomy import read_taxonomy

TAXONOMY = Path(__file__).parents[2] / "notebooks" / "policies" / "licences.taxonomy.yaml"


def of(expression: str | None = None, *classifiers: str, text: str | None = None) -> str | None:
    return declared(expression=expression, classifiers=[f"License :: {each}" for each in classifiers], text=text)


EXPRESSIONS = {
    "MIT": "open/permissive/mit",
    "mit": "open/permissive/mit",
    "MIT-0 OR MIT": "open/permissive/mit",
    "BSD-2-Clause AND BSD-3-Clause": "open/permissive/bsd",
    "Apache-2.0 WITH LLVM-exception": "open/permissive/apache",
    "(Apache-2.0 WITH LLVM-exception) AND Apache-2.0": "open/permissive/apache",
    "GPL-2.0-or-later WITH Classpath-exception-2.0": "open/copyleft/gpl",
    "LGPL-2.1+": "open/copyleft/lgpl",
    "AGPL-3.0-only": "open/copyleft/agpl",
    "CC0-1.0 OR Unlicense": "open/unconditional",
    "Apache-2.0 OR BSD-2-Clause": MIXED,
    "MPL-2.0 AND MIT": MIXED,
    "BSD-3-Clause AND (MIT OR (Zlib AND ISC))": MIXED,
    "LicenseRef-Proprietary": None,
    "MIT AND LicenseRef-Proprietary": None,  # one that nobody knows makes the whole unknown
    "MIT BSD-3-Clause": None,
    "MIT AND": None,
    "AND": None,
    "": None,
    "MIT XOR ISC": None,
    "MIT" + " OR MIT" * 1000: None,
}


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression[:40])
def test_expressions(expression: str) -> None:
    assert of(expression) == EXPRESSIONS[expression]


TEXTS = {
    "MIT": "open/permissive/mit",
    "MIT License": "open/permissive/mit",
    "The MIT License (MIT)\n\nCopyright (c) 2019": "open/permissive/mit",
    "BSD 3-Clause License\n\nCopyright": "open/permissive/bsd",
    "new BSD": "open/permissive/bsd",
    "3-Clause BSD License": "open/permissive/bsd",
    "Apache License, Version 2.0": "open/permissive/apache",
    "Apache Software License": "open/permissive/apache",
    "ISC license": "open/permissive/isc",
    "PSFL": "open/permissive/psf",
    "MPL-2.0 AND MIT": MIXED,
    "UNKNOWN": None,
    "Copyright (c) 2001, somebody. MIT": None,
    "not the MIT License": None,
    "": None,
    "x" * 10_000: None,
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])
def test_texts(text: str) -> None:
    assert of(text=text) == TEXTS[text]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.path)
def test_every_name_of_a_family_is_found_and_belongs_to_no_other(family: Family) -> None:
    others = [each for each in FAMILIES if each is not family]
    for name in family.identifiers.split():
        assert of(name) == of(f"{name}-or-later") == family.path
        assert not any(name in other.identifiers.split() for other in others)
    for name in family.classifiers.split("; "):
        assert of(None, f"OSI Approved :: {name}") == family.path
        assert not any(name in other.classifiers.split("; ") for other in others)
    for name in family.names.split("; "):
        assert of(text=name) == family.path
        assert not any(name in other.names.split("; ") for other in others)


def test_the_expression_decides_then_the_classifiers_then_the_text() -> None:
    assert of("ISC", "OSI Approved :: MIT License", text="BSD") == "open/permissive/isc"
    assert of("Nobody-Knows", "OSI Approved :: MIT License", text="BSD") is None  # and not what is said less exactly
    assert of(None, "OSI Approved :: MIT License", text="BSD") == "open/permissive/mit"
    assert of(None, "OSI Approved", text="BSD") == "open/permissive/bsd"
    assert of(None, text="BSD") == "open/permissive/bsd"


def test_several_classifiers_are_mixed_and_one_that_is_not_open_decides() -> None:
    assert of(None, "OSI Approved :: MIT License", "OSI Approved :: BSD License") == MIXED
    assert of(None, "OSI Approved :: BSD License", "OSI Approved") == "open/permissive/bsd"
    assert of(None, "OSI Approved :: MIT License", "Other/Proprietary License") is None
    assert of(None, "MIT License") is None  # no classifier: the part "OSI Approved" is missing


def test_the_shipped_taxonomy_has_every_class() -> None:
    classes = read_taxonomy(read_document(TAXONOMY)).codes
    assert [path for path in PATHS if path not in classes] == []
    assert len(set(PATHS)) == len(PATHS)
