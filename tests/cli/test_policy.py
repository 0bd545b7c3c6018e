"""`explorer policy` as a person meets it."""

import json
from pathlib import Path

import pytest
import torch

from explorer import layers
from explorer.errors import RecipeError
from tests.cli.test_cli import explorer, refused
from tests.cli.test_taxonomy import desk, signed  # noqa: F401 (fixtures)
from tests.foreign_models import MinGPT
from tests.provenance import people
from tests.provenance.drafts_for_tests import EXAMPLES, example_taxonomy

HALF = EXAMPLES / "half-depth.policy.yaml"
SEALED = EXAMPLES / "sealed.policy.yaml"
TREE = ("--taxonomy", EXAMPLES / "licences.taxonomy.yaml")
LAYERS = ("--layers", Path(__file__).parents[1] / "provenance" / "transformer.layers.txt")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def told(*arguments: str | Path) -> dict:
    done = explorer("policy", "check", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_check_prints_a_table_for_each_phase_and_who_decided() -> None:
    lines = explorer("policy", "check", HALF, *TREE, *LAYERS).stdout.splitlines()
    assert lines[0].startswith("policy half-depth version 1: unsigned draft, sha256 ")
    assert lines[1] == f"taxonomy licences version 1: unsigned draft, sha256 {example_taxonomy().digest}"
    assert lines[2] == "quarantine: an example without a valid tag stops the loader; it never trains"
    assert lines[3] == "a weight of 0 or 1 is a guarantee; a fraction (~) is attenuation and guarantees nothing"
    at = lines.index("progress [0, 0.3334)")
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["blocks.0.attention", "..", "side.news.mlp", ".."],
        ["class", "embed", "side.news.attention", "head"],
    ]
    bsd = [" ".join(line.split()) for line in lines if line.startswith("open/permissive/bsd")]
    assert bsd == ["open/permissive/bsd 0 r0 0 r1 0 r2", "open/permissive/bsd 0 r0 0 r1 1 r3"]
    assert next(line for line in lines if line.startswith("licensed ")).split()[1:] == ["0", "-", "0", "-", "0", "-"]
    assert (
        f"  r2  {HALF}:15: rules[2]: open/mixed, open/pooled, open/permissive/bsd; progress [0, 0.3334): weight 0"
        in lines
    )
    assert f"  {HALF}:12: rules: no rule names class personal; it trains nothing" in lines


def test_check_shows_regions_conditions_and_attenuation() -> None:
    lines = explorer("policy", "check", SEALED, *TREE, *LAYERS).stdout.splitlines()
    customer = next(line for line in lines if line.startswith("personal/customer"))
    assert customer.split() == ["personal/customer", "0", "r0", "0", "s:news", "0", "r0", "1", "s:customer"]
    settled = lines.index("progress [0, 1], settled")
    copyleft = next(line for line in lines[settled:] if line.startswith("open/copyleft"))
    assert copyleft.split()[1:3] == ["0.25~", "r1"]
    assert f"  r1  {SEALED}:21: rules[1]: open/mixed, open/pooled, open/copyleft; when settled: weight 0.25~" in lines
    where = f"  s:customer  {SEALED}:16: sealed[0]: "
    assert f"{where}sealed for personal/customer: adapters of rank 8 on blocks.*.attention*" in lines
    assert lines[-2:] == [
        "findings",
        f"  {SEALED}:21: rules[1].weight: 0.25 is attenuation, not a guarantee; only 0 and 1 are",
    ]


def test_check_says_whose_numbers_are_confidential(tmp_path: Path) -> None:
    draft = tmp_path / "p.yaml"
    text = HALF.read_text()
    for branches, words in (("[personal]", "the numbers of personal are"), ('["*"]', "the numbers of every class are")):
        draft.write_text(f"{text}confidential: {branches}\n")
        lines = explorer("policy", "check", draft, *TREE).stdout.splitlines()
        assert f"confidential: {words} encrypted, and with them those over several classes at once" in lines
    assert told(draft, *TREE)["confidential"] == ["*"] and told(HALF, *TREE)["confidential"] == []
    assert not any(
        line.startswith("confidential") for line in explorer("policy", "check", HALF, *TREE).stdout.splitlines()
    )


def test_a_phase_that_repeats_another_says_so(tmp_path: Path) -> None:
    same = HALF.read_text().replace("progress: [0, 0.3334], weight: 0", "progress: [0, 0.3334], weight: 1")
    (tmp_path / "same.yaml").write_text(same.replace("{classes: [open], ", "{classes: [open/permissive/mit], "))
    done = explorer("policy", "check", tmp_path / "same.yaml", *TREE, "--layer", "embed", "--layer", "head")
    assert "progress [0.3334, 1]\n" in done.stdout
    (tmp_path / "same.yaml").write_text(HALF.read_text().replace("[0, 0.3334], weight: 0", "[0, 0.3334], weight: 0.0"))
    done = explorer("policy", "check", tmp_path / "same.yaml", *TREE, "--layer", "embed")
    assert "progress [0.3334, 1]: as in progress [0, 0.3334)\n" in done.stdout


def test_a_narrow_terminal_gets_the_same_columns_below_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = explorer("policy", "check", HALF, *TREE, *LAYERS).stdout
    monkeypatch.setenv("COLUMNS", "60")
    narrow = explorer("policy", "check", HALF, *TREE, *LAYERS).stdout
    assert wide.count("open/permissive/bsd  ") == 2 and narrow.count("open/permissive/bsd  ") == 4


def test_without_layers_the_policy_is_checked_and_no_matrix_is_printed() -> None:
    done = explorer("policy", "check", SEALED, *TREE)
    assert "no layers named: --model NAME, --layers FILE or --layer NAME prints the matrix" in done.stdout
    assert "progress [0, 1]" not in done.stdout and "fits none" not in done.stdout
    assert told(SEALED, *TREE)["phases"] == []


def test_json_says_the_same_for_programs() -> None:
    found = told(HALF, *TREE, *LAYERS)
    assert found["policy"]["signed_by"] == [] and found["taxonomy"]["digest"] == example_taxonomy().digest
    assert found["rules"][0]["line"] == 13 and found["rules"][0]["layers"] == ["*embed*"]
    late = found["phases"][1]
    assert late["progress"] == [0.3334, 1.0] and late["conditions"] == []
    assert found["layers"][-1] == {"name": "head", "depth": 1.0, "also": []}
    assert late["classes"]["open/permissive/bsd"][-1] == {
        "weight": 1.0,
        "rule": 3,
        "region": None,
        "reason": "rules[3]",
        "guaranteed": True,
    }
    assert found["findings"][0]["key"] == "rules" and found["findings"][0]["line"] == 12
    settled = told(SEALED, *TREE, *LAYERS)["phases"][1]
    assert settled["conditions"] == ["settled"]
    assert settled["classes"]["open/copyleft"][0]["guaranteed"] is False


def test_layers_by_name_and_faults_in_them(tmp_path: Path) -> None:
    (tmp_path / "layers.json").write_text('["embed", "head"]')
    by_file = told(HALF, *TREE, "--layers", tmp_path / "layers.json")
    assert told(HALF, *TREE, "--layer", "embed", "--layer", "head") == by_file
    assert refused("policy", "check", HALF, *TREE, "--layer", "a..b").startswith(
        "explorer: --layer: [0]: not a layer name"
    )
    both = refused("policy", "check", HALF, *TREE, *LAYERS, "--layer", "embed")
    assert both == "explorer: name layers in one way: expected only one of --model NAME, --layers FILE and --layer NAME"


def test_the_layers_of_a_model_of_the_catalogue() -> None:
    """With its parameters: a shallower model has fewer layers, and the depths follow."""
    whole = told(HALF, *TREE, "--model", "gpt", "--set", "width=16", "--set", "heads=2", "--set", "depth=1")
    assert [layer["name"] for layer in whole["layers"]] == [
        "embed.tokens",
        "embed.positions",
        "blocks.0.norm1",
        "blocks.0.attention.qkv",
        "blocks.0.attention.out",
        "blocks.0.norm2",
        "blocks.0.mlp.up",
        "blocks.0.mlp.down",
        "norm",
    ]
    again = told(HALF, *TREE, "--model", "gpt", "--set", "width=16", "--set", "heads=2", "--set", "positions=none")
    assert [layer["name"] for layer in again["layers"][:2]] == ["embed.tokens", "blocks.0.norm1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "gtp"), "explorer: --model: unknown model 'gtp'; did you mean 'gpt'?"),
        (
            ("--model", "gpt", "--set", "widht=16"),
            "explorer: --model.gpt: unknown parameter 'widht'; did you mean",
        ),
        (("--model", "gpt", "--set", "width"), "explorer: --set: found 'width', expected NAME=VALUE such as width=64"),
        (("--set", "width=16"), "explorer: --set: found without --model NAME"),
        (("--model", "gpt", "--layer", "embed"), "explorer: name layers in one way: expected only one of"),
    ],
)
def test_models_that_there_are_not(arguments: tuple[str, ...], message: str) -> None:
    assert refused("policy", "check", HALF, *TREE, *arguments).startswith(message)


def test_a_policy_that_does_not_fit_the_model_fails(tmp_path: Path) -> None:
    """The matrix is printed all the same, and the finding says what is nearest."""
    draft = tmp_path / "p.yaml"
    draft.write_text(HALF.read_text().replace('["*embed*"]', '["*embed*", "block.*"]'))
    done = explorer("policy", "check", draft, *TREE, "--model", "gpt-tiny")
    assert done.returncode == 1 and "progress [0.3334, 1]" in done.stdout
    assert done.stderr.startswith(
        f"explorer: {draft}: does not fit the model: rules[0].layers[1]: 'block.*' fits none of the 27 layers; "
        "nearest: blocks."
    )
    assert explorer("policy", "check", HALF, *TREE, "--model", "gpt-tiny").returncode == 0
    assert explorer("policy", "check", draft, *TREE).returncode == 0  # nothing is known of a model


def test_layers_of_a_model_of_ones_own_come_from_a_file(tmp_path: Path) -> None:
    """`explorer.layers` writes it, with all names of a tensor; a denial under the second one is seen in the matrix."""
    model = MinGPT(tied=True)
    file = tmp_path / "mine.layers.txt"
    file.write_text(layers(model, torch.zeros(2, 8, dtype=torch.int64)))
    assert file.read_text().splitlines()[:2] == ["transformer.wte lm_head", "transformer.wpe"]
    draft = tmp_path / "p.yaml"
    draft.write_text(HALF.read_text().replace('["*embed*"]', "[lm_head]").replace("[0, 0.5]", "[0.5, 1]"))
    found = told(draft, *TREE, "--layers", file)
    cell = found["phases"][1]["classes"]["open/permissive/bsd"][0]
    assert (cell["weight"], cell["rule"]) == (0.0, 0)
    printed = explorer("policy", "check", draft, *TREE, "--layers", file).stdout
    assert "transformer.wte is also lm_head: the strictest of these names decides" in printed
    with pytest.raises(RecipeError, match="Idle: the call used none of its tensors"):
        layers(Idle(), torch.zeros(1))


class Idle(MinGPT):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens


def test_another_taxonomy_and_unknown_classes_are_refused_with_their_lines(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((EXAMPLES / "licences.taxonomy.yaml").read_text().replace("version: 1", "version: 2"))
    message = refused("policy", "check", HALF, "--taxonomy", other)
    assert message.startswith(f"explorer: {HALF}:10: taxonomy: the policy was written for licences version 1, sha256 ")
    typo = tmp_path / "typo.yaml"
    typo.write_text(HALF.read_text().replace("permissive/bsd], depth", "permissive/bds], depth"))
    message = refused("policy", "check", typo, *TREE)
    assert f"{typo}:14: rules[1].classes[2]: unknown class 'open/permissive/bds'; did you mean" in message


def test_sign_and_check_what_was_signed(desk: Path, signed: Path) -> None:  # noqa: F811
    trust, tree = ("--trust", desk / "trust.json"), ("--taxonomy", signed)
    done = explorer("policy", "sign", HALF, *tree, *trust, "--key", desk / "risk.pem", "--out", desk / "p.json")
    assert done.returncode == 0, done.stderr
    lines = explorer("policy", "check", desk / "p.json", *tree, *trust, *LAYERS).stdout.splitlines()
    assert lines[0].startswith("policy half-depth version 1: signed by example.com/model-risk, sha256 ")
    assert lines[1].startswith("taxonomy licences version 1: signed by example.com/data-governance, sha256 ")
    assert f"  r3  {desk / 'p.json'}: rules[3]: open: weight 1" in lines
    found, draft = told(desk / "p.json", *tree, *trust, *LAYERS), told(HALF, *TREE, *LAYERS)
    assert found["policy"] == {**draft["policy"], "signed_by": [people.RISK]}
    assert found["phases"] == draft["phases"]
    assert refused("policy", "check", desk / "p.json", *TREE).endswith("are believed with --trust FILE")


def test_a_policy_that_does_not_fit_is_not_signed(desk: Path, tmp_path: Path) -> None:  # noqa: F811
    trust = ("--trust", desk / "trust.json", "--out", desk / "p.json")
    message = refused("policy", "sign", HALF, *TREE, *trust, "--key", desk / "governance.pem")
    assert "wrong role" in message
    (tmp_path / "bad.yaml").write_text(HALF.read_text().replace("weight: 1}", "weight: 2}"))
    message = refused("policy", "sign", tmp_path / "bad.yaml", *TREE, *trust, "--key", desk / "risk.pem")
    assert "rules[3].weight: input should be less than or equal to 1, found 2" in message
    assert not (desk / "p.json").exists()
