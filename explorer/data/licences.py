"""The licence that a distribution declares, as a class of data: `open/permissive/mit`.

Three places are asked, the first that says something decides: the SPDX expression (`License-Expression`, PEP 639), the
classifiers, and the first line of the `License` text. An expression whose licences are of one family has the class of
that family; one that mixes families, by AND or by OR, is `open/mixed`, because both are declared and a policy that
forbids one of them has to be able to forbid it. What is not understood, or not open, has no class.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

MIXED = "open/mixed"
POOLED = "open/pooled"  # for families that too little was found of
MAX_TEXT = 200  # characters of an expression or of the first line of a text


class Family(NamedTuple):
    """Licences that a taxonomy holds for one class."""

    path: str
    identifiers: str  # SPDX, without `-only`, `-or-later` and `+`
    classifiers: str  # what stands behind "License :: OSI Approved :: ", "; " between them
    names: str  # how people write it, reduced by `_reduced`


FAMILIES = (
    Family("open/permissive/mit", "MIT MIT-0", "MIT License; MIT No Attribution License (MIT-0)", "mit; expat"),
    Family(
        "open/permissive/bsd",
        "BSD-2-Clause BSD-3-Clause",
        "BSD License",
        "bsd; new bsd; modified bsd; revised bsd; simplified bsd; bsd 3; bsd 2; "
        "bsd 3 clause; bsd 2 clause; 3 clause bsd; 2 clause bsd",
    ),
    Family("open/permissive/apache", "Apache-2.0", "Apache Software License", "apache; apache 2; apache 2.0; asl 2.0"),
    Family("open/permissive/isc", "ISC", "ISC License (ISCL)", "isc; iscl"),
    Family(
        "open/permissive/psf",
        "PSF-2.0 Python-2.0",
        "Python Software Foundation License; Python License (CNRI Python License)",
        "psf; psfl; python foundation",
    ),
    Family("open/permissive/zlib", "Zlib", "zlib/libpng License", "zlib; zlib libpng"),
    Family("open/permissive/boost", "BSL-1.0", "Boost Software License 1.0 (BSL-1.0)", "boost; boost 1.0"),
    Family(
        "open/permissive/hpnd",
        "HPND MIT-CMU",
        "Historical Permission Notice and Disclaimer (HPND); CMU License (MIT-CMU)",
        "hpnd; mit cmu",
    ),
    Family(
        "open/copyleft/mpl",
        "MPL-1.1 MPL-2.0",
        "Mozilla Public License 1.1 (MPL 1.1); Mozilla Public License 2.0 (MPL 2.0)",
        "mpl; mpl 2.0; mpl 1.1; mozilla public 2.0; mozilla public 2.0 mpl",
    ),
    Family(
        "open/copyleft/lgpl",
        "LGPL-2.0 LGPL-2.1 LGPL-3.0",
        "GNU Library or Lesser General Public License (LGPL); GNU Lesser General Public License v2 (LGPLv2); "
        "GNU Lesser General Public License v2 or later (LGPLv2+); GNU Lesser General Public License v3 (LGPLv3); "
        "GNU Lesser General Public License v3 or later (LGPLv3+)",
        "lgpl; gnu lgpl; lgplv2; lgplv3; lgpl 2.1; lgpl 3",
    ),
    Family(
        "open/copyleft/gpl",
        "GPL-2.0 GPL-3.0",
        "GNU General Public License (GPL); GNU General Public License v2 (GPLv2); "
        "GNU General Public License v2 or later (GPLv2+); GNU General Public License v3 (GPLv3); "
        "GNU General Public License v3 or later (GPLv3+)",
        "gpl; gnu gpl; gplv2; gplv3; gpl 2; gpl 3",
    ),
    Family(
        "open/copyleft/agpl",
        "AGPL-3.0",
        "GNU Affero General Public License v3; GNU Affero General Public License v3 or later (AGPLv3+)",
        "agpl; agplv3; agpl 3",
    ),
    Family("open/copyleft/epl", "EPL-2.0", "Eclipse Public License 2.0 (EPL-2.0)", "epl; epl 2.0"),
    Family(
        "open/unconditional",
        "0BSD Unlicense CC0-1.0",
        "The Unlicense (Unlicense); Zero-Clause BSD (0BSD)",
        "unlicense; 0bsd; cc0; cc0 1.0",
    ),
)

IDENTIFIERS = {name.lower(): family.path for family in FAMILIES for name in family.identifiers.split()}
CLASSIFIERS = {name: family.path for family in FAMILIES for name in family.classifiers.split("; ")}
NAMES = {name: family.path for family in FAMILIES for name in family.names.split("; ")}
PATHS = (*(family.path for family in FAMILIES), MIXED, POOLED)
"""Every class that can come out of a licence."""

APPROVED = "License :: OSI Approved"
NOISE = frozenset({"the", "license", "licence", "version", "software", "v"})


def declared(*, expression: str | None, classifiers: Sequence[str], text: str | None) -> str | None:
    """The class that the metadata of a distribution declares, or None where it declares none that is understood.

    >>> declared(expression="Apache-2.0 OR BSD-2-Clause", classifiers=[], text=None)
    'open/mixed'
    """
    licences = [line for line in classifiers if line.startswith("License ::") and line != APPROVED]
    if expression is not None:
        return _of_expression(expression)
    if licences:
        return _together([CLASSIFIERS.get(line.removeprefix(f"{APPROVED} :: ")) for line in licences])
    first = (text or "").strip().partition("\n")[0]
    return _of_expression(first) or NAMES.get(_reduced(first))


def _of_expression(expression: str) -> str | None:
    """The class of an SPDX expression. Brackets only group, and an exception (`WITH`) only permits more."""
    words = expression[: MAX_TEXT + 1].replace("(", " ").replace(")", " ").split()
    operands, operators = words[::2], ["AND", *words[1::2]]
    if len(expression) > MAX_TEXT or len(words) % 2 == 0 or not set(operators) <= {"AND", "OR", "WITH"}:
        return None
    paths = [
        IDENTIFIERS.get(re.sub(r"(-only|-or-later|\+)$", "", name.lower()))
        for name, operator in zip(operands, operators, strict=True)
        if operator != "WITH"
    ]
    return _together(paths)


def _together(paths: Sequence[str | None]) -> str | None:
    """The class of what has all of these; none if one of them is not known."""
    if None in paths:
        return None
    return paths[0] if len(set(paths)) == 1 else MIXED


def _reduced(name: str) -> str:
    """The words of a licence's name that tell it from others.

    >>> _reduced("Apache License, Version 2.0"), _reduced("The MIT License (MIT)")
    ('apache 2.0', 'mit')
    """
    words = re.findall(r"[a-z0-9][a-z0-9.+]*", name[:MAX_TEXT].lower())
    return " ".join(dict.fromkeys(word for word in words if word not in NOISE))
