"""The grammar of IRIs is loaded by the first one that asks it, and checks what it always did."""

import subprocess
import sys

import pytest

from explorer import deferred

FIRST_USE = """
import sys
import explorer, altair, jsonschema
assert "lark" not in sys.modules, "Altair loaded the grammar"
check = jsonschema.FormatChecker()
assert check.conforms("http://example.org/\\u00fc", "iri")
assert "lark" in sys.modules, "nothing was checked"
assert not check.conforms("no iri: <at all>", "iri")
import rfc3987_syntax
assert rfc3987_syntax.is_valid_syntax("iri", "http://example.org/") and rfc3987_syntax.__file__
"""


@pytest.mark.slow
def test_the_grammar_is_loaded_at_its_first_use_and_checks_as_before() -> None:
    pytest.importorskip(deferred.GRAMMAR)
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True)


def test_a_grammar_that_is_loaded_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, deferred.GRAMMAR, sys)
    deferred.install()
    assert sys.modules[deferred.GRAMMAR] is sys


def test_a_grammar_that_is_not_installed_stays_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred, "GRAMMAR", "no_such_grammar")
    deferred.install()
    assert "no_such_grammar" not in sys.modules
