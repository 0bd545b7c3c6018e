"""`explorer prices`: what applies and why, one's own rows, catalogues; and what every view then costs."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from explorer.costing import COLUMNS, own_prices
from explorer.run_files import Energy
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from tests.builders import change_result
from tests.cli.command import explorer, refused
from tests.sample import write_sample

NOW = int(datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC).timestamp())
CATALOGUE = """InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region
p5en.48xlarge,H200,8.0,60.0,20.0,us-east-1
p5en.48xlarge,H200,8.0,60.0,18.0,us-east-1
g4dn.xlarge,T4,1.0,0.5,,us-west-2
m5.large,,,0.096,,us-east-1
"""


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.cli.options.time", lambda: NOW)


def told(*arguments: object) -> Any:
    done = explorer("prices", *map(str, arguments), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def own(tmp_path: Path, *rows: str) -> Path:
    (tmp_path / "prices.csv").write_text("\n".join([",".join(COLUMNS), *rows, ""]))
    return tmp_path


def test_the_price_that_applies_is_told_with_its_reason(tmp_path: Path) -> None:
    found = told("list", "--hardware", "NVIDIA H200", "--runs", tmp_path)
    assert found["words"] == "$7.91/h as of 2026-08-06, one of 8 of aws p5en.48xlarge, dstackai/dstack#4110"
    assert found["why"] == "the cheapest of 2 on demand"
    assert [(row["provider"], row["used"], row["stale"]) for row in found["prices"]] == [
        ("aws", True, False),
        ("gcp", False, False),
    ]
    shown = explorer("prices", "list", "--hardware", "NVIDIA H200", "--runs", tmp_path).stdout
    assert shown.startswith("NVIDIA H200: $7.91/h as of 2026-08-06")
    assert [line.split()[0] for line in shown.splitlines() if "ultragpu" in line or "p5en" in line][1:] == [
        "used",
        "gcp",
    ]


def test_an_old_price_says_how_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = datetime.datetime(2027, 9, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr("explorer.cli.options.time", lambda: int(later.timestamp()))
    found = told("list", "--hardware", "NVIDIA H200", "--runs", tmp_path)
    assert "as of 2026-08-06, over 12 months old," in found["words"]
    assert all(row["stale"] for row in found["prices"])
    assert "2026-08-06 (over 12 months old)" in explorer("prices", "list", "--hardware", "H200").stdout


def test_energy_is_a_column_of_the_table_once_a_run_has_it(tmp_path: Path) -> None:
    write_sample(tmp_path)
    assert " energy " not in explorer("results", "--runs", tmp_path).stdout
    result = next(tmp_path.glob("digits/*/result.json"))
    change_result(result.parent, energy=Energy(joules=7200.0, steps=1, source="RAPL package"))
    ingest(tmp_path)
    lines = explorer("results", "--runs", tmp_path).stdout.splitlines()
    assert " energy " in lines[0] and sum("Wh " in line for line in lines) == 1


def test_unknown_hardware_has_no_price(tmp_path: Path) -> None:
    found = told("list", "--hardware", "Tesla\x1b[31m K80", "--runs", tmp_path)
    assert (found["used"], found["prices"]) == (None, [])
    assert found["words"] == "no price for Tesla\x1b[31m K80"
    shown = explorer("prices", "list", "--hardware", "Tesla\x1b[31m K80", "--runs", tmp_path).stdout
    assert shown.startswith("Tesla\\x1b[31m K80: no price for Tesla\\x1b[31m K80\n  costs are left out;")


def test_another_currency_is_listed_and_not_used(tmp_path: Path) -> None:
    runs = own(tmp_path, "own,box,,on demand,K80,1,2.0,,2026-11-01,bill,EUR")
    found = told("list", "--hardware", "Tesla K80", "--runs", runs)
    assert (found["used"], found["words"]) == (None, "no price for Tesla K80")
    assert "prices in EUR are not converted" in found["why"]
    assert "EUR 2.00" in explorer("prices", "list", "--hardware", "Tesla K80", "--runs", runs).stdout
    own(tmp_path, "own,box,,on demand,K80,1,2.0,,2026-11-01,bill,USD")  # the control
    assert told("list", "--hardware", "Tesla K80", "--runs", runs)["used"]["usd_per_hour"] == 2.0


def test_spot_alone_is_listed_and_not_used(tmp_path: Path) -> None:
    found = told("list", "--all", "--provider", "gcp", "--runs", tmp_path)
    assert {(row["provider"], row["tenancy"]) for row in found} == {("gcp", "on demand"), ("gcp", "spot")}
    assert "found --all and --hardware NAME" in refused("prices", "list", "--all", "--hardware", "T4")


ADD = ("add", "--hardware", "AMD EPYC", "--count", "2", "--source", "power and depreciation")


@pytest.mark.slow
def test_an_own_price_is_in_every_table_at_once(tmp_path: Path) -> None:
    write_sample(tmp_path)
    ingest(tmp_path)
    assert "\nno price for AMD EPYC" in explorer("results", "--runs", tmp_path).stdout
    before, after = costs(tmp_path), told(*ADD, "--usd-per-hour", 0.4, "--runs", tmp_path)
    assert set(before) == {None}
    shown = explorer("results", "--runs", tmp_path).stdout
    (told_of,) = {line for line in shown.splitlines() if line.startswith("dollars on ")}
    assert told_of.endswith(": $0.20/h as of 2026-11-22, own AMD EPYC, on demand (power and depreciation)")
    assert after["published"] and after["price"]["retrieved"] == "2026-11-22"
    seconds = column(tmp_path, "train_seconds")
    assert costs(tmp_path) == [None if each is None else pytest.approx(each / 3600 * 0.2) for each in seconds]
    assert set(column(tmp_path, "price_as_of")) == {"2026-11-22"}
    assert told(*ADD, "--usd-per-hour", 0.8, "--runs", tmp_path)["replaced"] == 1
    (hardware,) = set(column(tmp_path, "hardware"))
    assert after["covers"] == [hardware]
    other = explorer("prices", "add", "--hardware", "EPYC 9", *ADD[3:], "--usd-per-hour", "1", "--runs", tmp_path)
    assert f"no result here has hardware with these words in its name; known: {hardware}" in other.stdout
    assert told("remove", "--hardware", "EPYC 9", "--runs", tmp_path)["replaced"] == 1
    assert [row.usd_per_hour for row in own_prices(tmp_path)] == [0.8]
    assert told("remove", "--hardware", "AMD EPYC", "--runs", tmp_path)["replaced"] == 1
    assert set(costs(tmp_path)) == {None}
    ingest(own(tmp_path, "own,box,,on demand,AMD EPYC,1,2.0,,2026-11-01,bill,EUR"))
    assert set(costs(tmp_path)) == {None}  # euros are no dollars
    ingest(own(tmp_path, "own,box,,on demand,AMD EPYC,1,2.0,,2026-11-01,bill,USD"))
    assert None not in costs(tmp_path)


def column(runs: Path, name: str) -> list[Any]:
    found = queries.results(database(runs))
    return [row[found.columns.index(name)] for row in found.rows]


def costs(runs: Path) -> list[Any]:
    return column(runs, "cost_usd")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--usd-per-hour", "-1", "column usd_per_hour: found '-1'"),
        ("--usd-per-hour", "nan", "column usd_per_hour: found 'nan'"),
        ("--count", "0", "column count: found '0'"),
        ("--effective", "yesterday", "column effective: found 'yesterday'; expected 2026-11-09, 2026-11 or nothing"),
        ("--source", "", "column source: found ''"),
        ("--hardware", "two\nlines", "column instance: found 'two\\nlines'"),
    ],
)
def test_what_is_no_price_is_refused_and_nothing_is_written(
    option: str, value: str, message: str, tmp_path: Path
) -> None:
    arguments = {"--hardware": "AMD EPYC", "--usd-per-hour": "1", "--source": "bill", "--count": "1"} | {option: value}
    flat = [each for pair in arguments.items() for each in pair]
    assert message in refused("prices", "add", *flat, "--runs", tmp_path)
    assert not (tmp_path / "prices.csv").exists()


def test_a_damaged_file_of_ones_own_is_named_and_left_alone(tmp_path: Path) -> None:
    runs = own(tmp_path, "own,box,,on demand,K80,1,cheap,,2026-11-01,bill,USD")
    before = (runs / "prices.csv").read_bytes()
    for arguments in ([*map(str, ADD), "--usd-per-hour", "1"], ["list", "--hardware", "K80"]):
        assert "prices.csv, line 2, column usd_per_hour: found 'cheap'" in refused("prices", *arguments, "--runs", runs)
    assert (runs / "prices.csv").read_bytes() == before


IMPORT = ("--provider", "aws", "--retrieved", "2026-11-20")


def test_a_catalogue_is_taken_in(tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(CATALOGUE)
    found = told("import", tmp_path / "vms.csv", *IMPORT, "--runs", tmp_path)
    assert (found["rows"], found["prices"], found["skipped"]) == (4, 3, {"without an accelerator": 1})
    listed = told("list", "--hardware", "NVIDIA H200", "--runs", tmp_path)
    assert listed["words"].startswith(
        "$7.50/h as of 2026-11-20, one of 8 of aws p5en.48xlarge, catalogue vms.csv, sha256 "
    )
    assert listed["why"] == "the cheapest of your own prices, which takes precedence"
    assert [row["usd_per_hour"] for row in listed["prices"] if row["own"]] == [60.0, 18.0]
    again = told("import", tmp_path / "vms.csv", *IMPORT, "--accelerator", "T4", "--runs", tmp_path)
    assert (again["prices"], again["replaced"], len(own_prices(tmp_path))) == (1, 1, 3)
    plain = explorer("prices", "import", tmp_path / "vms.csv", *IMPORT, "--runs", tmp_path).stdout
    assert plain.startswith("3 prices of aws from 4 rows of vms.csv\n  rows left out: 1 without an accelerator\n")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (CATALOGUE.replace("60.0", "-60", 1), IMPORT, "vms.csv, line 2, column Price: found '-60'"),
        ("a,b\n", IMPORT, "vms.csv, line 1: there is no column InstanceType"),
        (CATALOGUE, ("--provider", "aws", "--retrieved", "soon"), "--retrieved: found 'soon'"),
        (CATALOGUE, ("--provider", "aws", "--retrieved", ""), "--retrieved: found nothing"),
        (CATALOGUE, ("--provider", "", "--retrieved", "2026-11"), "--provider: found ''"),
        (CATALOGUE, (*IMPORT, "--region", "mars"), "no price in 4 rows: 3 not in mars, 1 without an accelerator"),
    ],
)
def test_a_catalogue_that_cannot_be_used_changes_nothing(
    content: str, options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    runs = own(tmp_path, "own,box,,on demand,K80,1,2.0,,2026-11-01,bill,USD")
    before = (runs / "prices.csv").read_bytes()
    (tmp_path / "vms.csv").write_text(content)
    assert message in refused("prices", "import", tmp_path / "vms.csv", *options, "--runs", tmp_path)
    assert (runs / "prices.csv").read_bytes() == before


def test_a_catalogue_of_everything_has_to_be_narrowed(tmp_path: Path) -> None:
    header, row, *_ = CATALOGUE.splitlines()
    rows = [row.replace("us-east-1", f"r{number}") for number in range(2501)]
    (tmp_path / "vms.csv").write_text("\n".join([header, *rows]))
    arguments = ("prices", "import", tmp_path / "vms.csv", *IMPORT, "--runs", tmp_path)
    assert "5002 prices, at most 5000 at once: name a --region or --accelerator" in refused(*arguments)
    assert explorer(*arguments, "--region", "r7").returncode == 0
    assert len(own_prices(tmp_path)) == 2


def test_what_is_to_be_removed_has_to_be_named_and_there(tmp_path: Path) -> None:
    runs = own(
        tmp_path,
        "own,box,,on demand,K80,1,2.0,,2026-11-01,bill,USD",
        "aws,p2,,on demand,K80,1,0.9,,2026-11-01,list,USD",
    )
    assert "expected --hardware NAME, --provider NAME or both" in refused("prices", "remove", "--runs", runs)
    assert "none of your 2 own prices matches" in refused("prices", "remove", "--provider", "gcp", "--runs", runs)
    assert told("remove", "--hardware", "Tesla K80", "--provider", "aws", "--runs", runs)["replaced"] == 1
    assert [row.provider for row in own_prices(runs)] == ["own"]
