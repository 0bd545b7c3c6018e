"""The view as a token: it comes back as it was, and whatever else is refused in one sentence."""

import base64
import hashlib
import math
import zlib
from dataclasses import fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import AnalysisError
from explorer.views.explorer.question import CHOICES, MAX_STATE, MAX_TOKEN, Question, changed, from_token, to_token

ASKED = Question(dataset="digits", recipes=("fast", "heavy"), payment="cost", target=0.97, log=False)
OLD = (  # the same, as the first version wrote it
    "x1.HczLCoAgEEbhd_nXEu0iXyVaDDqaYCnOEEj07l2254NzwZOSsMLCp5hU"
    "YJBLhA2UhQ0q9Z2Pj10RfbGxS5UFdkGgv2xMZ8dqoNTidxqHebof.1uKlSg"
)


def sealed(packed: str, *, version: str = "x1") -> str:
    """A token with the right check, whoever wrote its state."""
    check = base64.urlsafe_b64encode(hashlib.sha256(f"{version}.{packed}".encode()).digest()).decode()[:6]
    return f"{version}.{packed}.{check}"


def forged(content: bytes) -> str:
    """A token of that content."""
    return sealed(base64.urlsafe_b64encode(zlib.compress(content, wbits=-15)).decode().rstrip("="))


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if get_origin(kind) is tuple:
        return st.lists(of_type(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is UnionType:
        return st.one_of(*map(of_type, get_args(kind)))
    return {
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        bool: st.booleans(),
        int: st.integers(-(2**53) + 1, 2**53 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }[kind]


KINDS = get_type_hints(Question)
QUESTIONS = st.fixed_dictionaries(
    {},
    optional={
        field.name: st.sampled_from(sorted(CHOICES[field.name]))
        if field.name in CHOICES
        else of_type(KINDS[field.name])
        for field in fields(Question)
    },
)


@settings(max_examples=25)
@given(QUESTIONS)
def test_every_question_comes_back(values: dict[str, Any]) -> None:
    question = Question(**values)
    assert from_token(to_token(question)) == question


def test_a_token_is_text_that_people_read_and_write() -> None:
    asked = Question(sweep="digits", metric="accuracy", payment="cost", target=0.97, recipes=("baseline", "fast"))
    token = "digits?metric=accuracy&x=cost&target=0.97&recipes=baseline,fast"
    assert to_token(asked) == token and from_token(token) == asked
    assert to_token(Question()) == "?" and from_token("?") == Question()
    assert to_token(Question(sweep="*")) == "*" and to_token(Question(sweep="a.b")) == "a%2Eb"
    assert to_token(Question(recipes=("a,b", "c d&e"), log=False)) == "?recipes=a%2Cb,c%20d%26e&log=no"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("digits", Question(sweep="digits")),
        ("target=97%", Question(target=0.97)),
        ("digits?target=96.7%&log=false", Question(sweep="digits", target=0.967, log=False)),
        (" digits?usd-per-hour=2 ", Question(sweep="digits", usd_per_hour=2.0)),
        ("explorer open explore --view 'digits?target=0.97'\n", Question(sweep="digits", target=0.97)),
        ("explorer open --view digits", Question(sweep="digits")),
        ("digits?brush=0.1,2,0.9,98%25&seeds=0,2", Question(sweep="digits", brush=(0.1, 2, 0.9, 0.98), seeds=(0, 2))),
    ],
)
def test_what_a_hand_types(typed: str, meant: Question) -> None:
    assert from_token(typed) == meant


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "expected SWEEP[?]FIELD=VALUE&"),
        ("digits?metrik=accuracy", "unknown field 'metrik'; did you mean 'metric'"),
        ("digits?x=cots", "unknown x 'cots'; did you mean 'cost'"),
        ("digits?order=lest", "unknown order 'lest'; did you mean 'least'"),
        ("digits?log=perhaps", "log: found 'perhaps'; expected yes or no"),
        ("digits?target", "found 'target'; expected FIELD=VALUE"),
        ("digits?target=high", "target: found 'high'; expected a number, such as 0.97 or 97%"),
        ("digits?target=0.9&target=0.8", "target is given twice"),
        ("digits?target=nan", "expected a number"),
        ("digits?target=1e999", "too large for a number"),
        ("digits?seeds=1.5", "seeds: found '1.5'; expected a number, such as 0"),
        (f"digits?seeds={'9' * 5000}", "expected a number"),
        ("digits?recipes=%ff", "not UTF-8"),
        ("digits?recipes=\ud800", "^the view: "),
        ("../../etc?x=time", "expected SWEEP"),
        ("explorer open explore --view 'digits", "expected one view in quotes"),
        ("explorer open explore --view digits; rm x", "expected one view in quotes"),
        ("<script>", "expected SWEEP"),
    ],
)
def test_what_a_hand_mistypes(typed: str, reason: str) -> None:
    with pytest.raises(AnalysisError, match=reason):
        from_token(typed)


def test_fields_of_code_are_read_as_python_has_them_or_as_a_token_does() -> None:
    wished = {"x": "cost", "recipes": ["a,b", "c"], "seeds": "0,2", "log": False, "brush": (0, 1, 0.5, 1.0)}
    asked = changed(Question(sweep="digits"), wished)
    assert asked == Question(
        sweep="digits", payment="cost", recipes=("a,b", "c"), seeds=(0, 2), log=False, brush=(0, 1, 0.5, 1.0)
    )
    assert changed(Question(), {"payment": "cost"}) == changed(Question(), {"x": "cost"})


@pytest.mark.parametrize(
    ("wished", "reason"),
    [
        ({"metrik": "nll"}, "unknown field 'metrik'; did you mean 'metric'"),
        ({"metric": 3}, "metric: input should be a valid string, found 3"),
        ({"seeds": [0, "a"]}, r"seeds\[1\]: input should be a valid integer, found 'a'"),
        ({"log": "perhaps"}, "log: found 'perhaps'; expected yes or no"),
        ({"target": float("nan")}, "target"),
        ({"recipes": object()}, "is not JSON serializable; expected texts, numbers, or lists of them"),
    ],
)
def test_fields_of_code_that_cannot_be_are_refused(wished: dict[str, Any], reason: str) -> None:
    with pytest.raises(AnalysisError, match=reason):
        changed(Question(), wished)


def test_a_token_that_was_broken_into_lines_still_works() -> None:
    for token in (to_token(ASKED), OLD):
        assert from_token(f"  {token[:7]}\r\n\t{token[7:20]}\n{token[20:]}\n") == ASKED


def test_a_changed_character_of_an_old_token_is_refused() -> None:
    """At every place: with another letter, without it, and with one more."""
    for place, was in enumerate(OLD):
        other = "A" if was != "A" else "B"
        for damaged in (other, "", was + "A"):
            with pytest.raises(AnalysisError, match=r"^the view: "):
                from_token(OLD[:place] + damaged + OLD[place + 1 :])


@settings(max_examples=50)
@given(st.one_of(st.text(max_size=80), st.binary(max_size=60).map(forged), st.binary(max_size=60)))
def test_anything_else_is_refused_with_one_kind_of_error(found: str | bytes) -> None:
    text = sealed(base64.urlsafe_b64encode(found).decode().rstrip("=") or "A") if isinstance(found, bytes) else found
    try:
        question = from_token(text)
    except AnalysisError:
        return
    assert from_token(to_token(question)) == question


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b'{"datasett":"digits"}', "did you mean 'dataset'"),
        (b'{"recipes":"fast"}', "recipes: input should be a valid array"),
        (b'{"recipes":["fast",1]}', r"recipes\[1\]: input should be a valid string, found 1"),
        (b'{"log":1}', "log: input should be a valid boolean, found 1"),
        (b'{"target":"0.9"}', "target: input should be a valid number"),
        (b'{"target":true}', "target: input should be a valid number"),
        (b'{"target":NaN}', "NaN is not JSON"),
        (b'{"target":1e999}', "too large for a number"),
        (b'{"dataset":null}', "dataset: input should be a valid string"),
        (b'{"dataset":"a","dataset":"b"}', "twice in one object"),
        (b'{"dataset":"\\ud800"}', "^the view: "),
        (b"[]", "the whole: "),
        (b"{", "not JSON"),
        (b"\xff", "can't decode"),
        (b"[" * 5000, "nested too deep"),
    ],
)
def test_a_state_that_is_no_question_is_refused(state: bytes, reason: str) -> None:
    with pytest.raises(AnalysisError, match=reason):
        from_token(forged(state))


def test_a_bomb_is_never_unpacked() -> None:
    bomb = forged(b'{"dataset":"' + b"a" * (100 * MAX_STATE) + b'"}')
    assert len(bomb) > MAX_TOKEN
    with pytest.raises(AnalysisError, match=f"at most {MAX_TOKEN} are read"):
        from_token(bomb)
    small = forged(b'{"dataset":"' + b"a" * (2 * MAX_STATE) + b'"}')
    assert len(small) < MAX_TOKEN
    with pytest.raises(AnalysisError, match=f"more than {MAX_STATE} bytes"):
        from_token(small)
    with pytest.raises(AnalysisError, match="at most"):
        from_token("x" * 10_000_000)


def test_what_stands_behind_the_state_is_refused() -> None:
    packed = base64.urlsafe_b64encode(zlib.compress(b"{}", wbits=-15) + b"more").decode().rstrip("=")
    with pytest.raises(AnalysisError, match="does not end where the token does"):
        from_token(sealed(packed))
    with pytest.raises(AnalysisError, match="does not end where the token does"):
        from_token(sealed(base64.urlsafe_b64encode(zlib.compress(b"{}" * 50, wbits=-15)[:-2]).decode().rstrip("=")))


def test_another_version_is_named() -> None:
    with pytest.raises(AnalysisError, match="found version 'x2'; this explorer reads 'x1'"):
        from_token(sealed("qqqq", version="x2"))


@pytest.mark.parametrize(
    "question",
    [
        Question(target=math.nan),
        Question(usd_per_hour=math.inf),
        Question(dataset="\ud800"),
        Question(recipes=tuple(hashlib.sha256(b"%d" % n).hexdigest() for n in range(500))),
    ],
)
def test_what_no_token_can_hold_is_said(question: Question) -> None:
    with pytest.raises(AnalysisError, match="this view has no token"):
        to_token(question)
