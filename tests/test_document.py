import pytest
import yaml
from yaml.parser import Parser

from explorer.errors import SpecError
from explorer.yaml_document import MAX_BYTES, document_of, parse_document, read_document


def parsed(text):
    return parse_document(text, where="s.yaml").value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("010", 10),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("2026-01-01", "2026-01-01"),
        ("'1'", "1"),
        (".inf", ".inf"),
        ("<<", "<<"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = parsed(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  x: 1\n  x: 2", "s.yaml:4: b.x: given twice, first in line 3"),
        ("a: &x 1", "s.yaml:1: anchors and aliases (& and *) are not allowed; write the value out"),
        ("a: [1]\nb: *x", "s.yaml:2: anchors and aliases (& and *) are not allowed; write the value out"),
        ("a: !!python/object/apply:os.system [ls]", "s.yaml:1: tags are not allowed; found"),
        ("a: [1,", "s.yaml:1: not YAML: "),
        ("a: 1\n---\nb: 2", "s.yaml:2: not YAML: but found another document"),
        ("1: 2", "s.yaml:1: a key must be text, found '1'; put it in quotes"),
        ("a: 1e999", "s.yaml:1: a: 1e999 is too large for a number"),
        ("b: 1\na: [1, 9007199254740993]", "s.yaml:2: a[1]: 9007199254740993 is too large for a number"),
        ("a: " + "1" * 5000, "s.yaml:1: a: 1111111111111111111111111111111111111111 is too large for a number"),
        ("a: \x00", "s.yaml: not YAML: unacceptable character"),
        ("a: " + "[" * 30, "s.yaml:1: nested deeper than 20 levels"),
        ("{" * 100_000, "s.yaml:1: nested deeper than 20 levels"),
        ("[" + "a," * 400_000 + "a]", "s.yaml:1: more than 100000 keys and values; at most so many are read"),
        ("".join(f"k{i}: 1\n" for i in range(90_000)), "s.yaml:50000: more than 100000 keys and values"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(SpecError) as caught:
        parsed(text)
    assert str(caught.value).startswith(message)


def test_a_billion_laughs_costs_nothing():
    laughs = "a: &a [x, x]\n" + "\n".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]" for i in range(20)
    )
    with pytest.raises(SpecError, match="anchors and aliases"):
        parsed(laughs)


def test_errors_carry_the_line_of_the_nearest_known_key():
    document = parse_document("a:\n  b:\n    - 1\n    - 2\n", where="s.yaml")
    assert str(document.error(("a", "b", 1), "bad")) == "s.yaml:4: a.b[1]: bad"
    assert str(document.error(("a", "b", 7), "bad")) == "s.yaml:2: a.b[7]: bad"
    assert str(document.error((), "bad")) == "s.yaml:1: bad"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match=r"cannot read .*absent.yaml: No such file"):
        read_document(tmp_path / "absent.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match="too large for a specification"):
        read_document(tmp_path / "large.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(SpecError, match=r"not UTF-8 text \(byte 3 is 0xe9\)"):
        read_document(tmp_path / "latin.yaml")


def test_python_values_say_the_same():
    assert document_of({"a": (1, 2.5)}).value == {"a": [1, 2.5]}
    with pytest.raises(SpecError, match=r"spec: a\[0\]: bytes is not allowed"):
        document_of({"a": [b"x"]})
    with pytest.raises(SpecError, match="spec: a: nan is not a number of JSON"):
        document_of({"a": float("nan")})
    with pytest.raises(SpecError, match="spec: a: a key must be text, found 1"):
        document_of({"a": {1: 2}})


def test_a_document_is_parsed_once(monkeypatch):
    """Twice cost twice: every event is checked on its way to the tree, before the next one is read."""
    text = "a: [1, 2, {b: c}]\nd: e\n"
    alone = list(yaml.parse(text, Loader=yaml.SafeLoader))
    seen = []
    parse = Parser.get_event
    monkeypatch.setattr(Parser, "get_event", lambda self: seen.append(1) or parse(self))
    assert parsed(text) == {"a": [1, 2, {"b": "c"}], "d": "e"}
    assert len(seen) == len(alone)
