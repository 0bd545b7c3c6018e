import dataclasses
import datetime
import os

import pytest

from explorer.costing import (
    COLUMNS,
    Price,
    cost_usd,
    default_price,
    load_prices,
    matching,
    parse_prices,
    price_at,
    prices,
    providers,
    to_csv,
    train_seconds,
)
from explorer.errors import PriceError, RunError
from explorer.page.amounts import age_words, price_words, stale
from explorer.run_files import PhaseProfile

TODAY = datetime.date(2026, 11, 22)
HEADER = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source"  # no currency
GOOD = "own,box,here,on demand,EPYC 7B13,2,1.5,,2026-11-21,invoice"


def price(**changes):
    plain = Price(provider="own", instance="box", accelerator="H200", count=2, usd_per_hour=8.0, source="invoice")
    return dataclasses.replace(plain, **changes)


def step(seconds):
    return PhaseProfile(seconds=seconds, low=0.9 * seconds, high=1.2 * seconds, windows=5)


def user_file(tmp_path, *rows, header=HEADER):
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_shipped_prices_are_dated_and_sourced():
    prices = load_prices()
    assert 15 <= len(prices) <= 30
    assert all(price.retrieved and price.source and not price.own for price in prices)


@pytest.mark.parametrize(
    ("hardware", "accelerator"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
    ],
)
def test_hardware_finds_its_price(hardware, accelerator):
    found = default_price(hardware, load_prices())
    assert found is not None
    assert found.accelerator == accelerator


@pytest.mark.parametrize("hardware", ["AMD EPYC 7B13", "NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""])
def test_hardware_without_a_row_has_no_price(hardware):
    assert default_price(hardware, load_prices()) is None


def test_default_is_the_cheapest_on_demand_for_an_accelerator():
    rows = matching("NVIDIA H100", load_prices())
    assert default_price("NVIDIA H100", load_prices()) == rows[0]
    on_demand = [row.usd_per_accelerator_hour for row in rows if row.tenancy == "on demand"]
    assert rows[0].usd_per_accelerator_hour == min(on_demand)
    assert {row.tenancy for row in rows} == {"on demand", "spot"}


def test_spot_alone_is_offered_but_never_the_default():
    spot = price(tenancy="spot")
    assert matching("NVIDIA H200", [spot]) == [spot]
    assert default_price("NVIDIA H200", [spot]) is None


def test_a_later_price_of_the_same_offer_replaces_the_earlier():
    old, new = price(effective=""), price(effective="2025-06", usd_per_hour=4.0)
    assert matching("H200", [old, new]) == matching("H200", [new, old]) == [new]
    p4d = [row for row in matching("NVIDIA A100-SXM4-40GB", load_prices()) if row.instance == "p4d.24xlarge"]
    assert [row.usd_per_hour for row in p4d] == [21.957642]


def test_a_users_own_price_is_preferred_even_when_dearer(tmp_path):
    path = user_file(tmp_path, "own,box,,on demand,H200,8,900,,2026-11,invoice", GOOD)
    prices = load_prices(path)
    assert len(prices) == len(load_prices()) + 2
    chosen = default_price("NVIDIA H200", prices)
    assert chosen is not None and chosen.own and chosen.usd_per_hour == 900
    assert default_price("AMD EPYC 7B13", prices) is not None


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (GOOD.replace("1.5", "-1"), "line 2, column usd_per_hour: found '-1'"),
        (GOOD.replace("1.5", "nan"), "line 2, column usd_per_hour: found 'nan'"),
        (GOOD.replace("1.5", "0"), "line 2, column usd_per_hour: found '0'"),
        (GOOD.replace("1.5", "1e9"), "line 2, column usd_per_hour"),
        (GOOD.replace(",2,", ",2.5,"), "line 2, column count: found '2.5'"),
        (GOOD.replace("on demand", "on demandd"), "did you mean 'on demand'?"),
        (GOOD.replace("2026-11-21", "21.11.2026"), "line 2, column retrieved: found '21.11.2026'"),
        (GOOD.replace("invoice", ""), "line 2, column source"),
        (GOOD.replace("EPYC 7B13", "--"), "line 2, column accelerator"),
        (GOOD.replace("2026-11-21", "2026-02-30"), "line 2, column retrieved: found '2026-02-30'"),
        (GOOD.replace("invoice", "in\x1b[31mvoice"), "line 2, column source: found 'in\\x1b[31mvoice'"),
        (GOOD.replace("here", "\u202ehere"), "line 2, column region"),
        (GOOD.replace("invoice", "x" * 1001), "expected a line of text, at most 1000 characters"),
        (GOOD + ",more", "line 2: 11 columns; expected 10"),
        ('own,"box', "line 2: not CSV"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row, expected):
    with pytest.raises(PriceError) as error:
        load_prices(user_file(tmp_path, row))
    assert expected in str(error.value)
    assert "prices.csv" in str(error.value)


def test_a_file_that_is_no_price_table_is_refused(tmp_path):
    with pytest.raises(PriceError, match="line 1: the columns are"):
        load_prices(user_file(tmp_path, header="a,b"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PriceError, match="not UTF-8"):
        load_prices(tmp_path / "binary")
    with pytest.raises(PriceError, match=r"cannot read the prices in .*absent"):
        load_prices(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PriceError, match="found a pipe"):  # and not an endless wait
        load_prices(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (prices.MAX_BYTES + 1))
    with pytest.raises(PriceError, match="too large"):
        load_prices(tmp_path / "large")


def test_cost_is_the_share_of_the_instance():
    assert cost_usd(3600, price()) == 4.0
    assert cost_usd(1800, price(), world_size=2) == 4.0


def test_time_is_steps_times_step_time_phase_by_phase():
    found = train_seconds({"small": 100, "large": 50}, {"small": step(0.01), "large": step(0.04), "other": step(9.0)})
    assert found.seconds == pytest.approx(3.0)
    assert (found.low, found.high) == (pytest.approx(2.7), pytest.approx(3.6))


def test_a_phase_without_a_step_time_has_no_time():
    with pytest.raises(RunError, match="unknown phase 'largee'; did you mean 'large'"):
        train_seconds({"small": 100, "largee": 1}, {"small": step(0.01), "large": step(0.04)})
    assert train_seconds({"small": 100, "large": 0}, {"small": step(0.01)}).seconds == pytest.approx(1.0)


# Currencies


def euros(**changes):
    return price(currency="EUR", **changes)


def test_another_currency_is_shown_and_never_becomes_a_cost():
    own, listed = euros(own=True), price(provider="aws", usd_per_hour=80.0)
    assert matching("NVIDIA H200", [own, listed]) == [listed, own]
    assert default_price("NVIDIA H200", [own, listed]) == listed
    assert default_price("NVIDIA H200", [own]) is None
    for refused in (lambda: cost_usd(3600, own), lambda: own.usd_per_accelerator_hour):
        with pytest.raises(PriceError, match="is in EUR, which is not converted: expected USD"):
            refused()
    assert default_price("NVIDIA H200", [price(own=True), listed]) == price(own=True)  # the control: it is the currency


def test_the_column_of_the_currency_may_be_left_out(tmp_path):
    (without,) = load_prices(user_file(tmp_path, GOOD))[-1:]
    (with_it,) = load_prices(user_file(tmp_path, GOOD + ",CHF", header=f"{HEADER},currency"))[-1:]
    assert (without.currency, with_it.currency) == ("USD", "CHF")
    assert dataclasses.replace(with_it, currency="USD") == without


@pytest.mark.parametrize("code", ["", "usd", "EURO", "€", "12A"])
def test_what_is_no_currency_is_refused(code, tmp_path):
    with pytest.raises(PriceError, match="line 2, column currency: found "):
        load_prices(user_file(tmp_path, f"{GOOD},{code}", header=",".join(COLUMNS)))


# Dates


@pytest.mark.parametrize(
    ("effective", "retrieved", "as_of", "expected"),
    [
        ("2025-06", "2026-11-09", "2026-11-09", ""),
        ("2026-10-01", "2026-01", "2026-10-01", ""),
        ("", "2026-05-26", "2026-05-26", ""),  # 180 days
        ("", "2026-05-25", "2026-05-25", "over 5 months old"),  # 181
        ("2026-05", "", "2026-05", ""),  # its last day may be meant
        ("2026-04", "", "2026-04", "over 6 months old"),
        ("2024-11-30", "2023-12", "2024-11-30", "over 23 months old"),
        ("", "", "", "of unknown date"),
        ("2027-01-01", "", "2027-01-01", ""),
    ],
)
def test_a_price_is_as_old_as_its_later_date(effective, retrieved, as_of, expected):
    dated = price(effective=effective, retrieved=retrieved)
    assert dated.as_of == as_of
    assert age_words(as_of, TODAY) == expected
    assert stale(dated, TODAY) == bool(expected)


# Words


def test_a_price_says_how_much_since_when_and_who_says_so():
    p5en = price_at("NVIDIA H200", load_prices(), "aws")
    assert price_words(p5en, hardware="NVIDIA H200", today=TODAY) == (
        "$7.91/h as of 2026-08-06, one of 8 of aws p5en.48xlarge, dstackai/dstack#4110"
    )
    later = datetime.date(2027, 8, 7)
    assert ", over 12 months old, " in price_words(p5en, hardware="NVIDIA H200", today=later)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "no price for A<b>"),
        (price(), "$4.00/h, of unknown date, one of 2 of own box, invoice"),
        (price(count=1, usd_per_hour=0.0526, retrieved="2026-11"), "$0.0526/h as of 2026-11, own box, invoice"),
        (
            price(currency="EUR", retrieved="2026-11", tenancy="spot"),
            "EUR 4.00/h as of 2026-11, one of 2 of own box, spot, invoice, in EUR, which is not converted",
        ),
    ],
)
def test_what_is_not_known_of_a_price_is_said(found, expected):
    assert price_words(found, hardware="A<b>", today=TODAY) == expected


# Choosing, and the user's file


def test_machines_of_ones_own_come_before_a_catalogue_of_ones_own():
    shipped = price(provider="aws", usd_per_hour=1.0)
    imported = price(provider="aws", own=True, usd_per_hour=2.0)
    mine = price(own=True, usd_per_hour=90.0)
    assert matching("H200", [shipped, imported, mine]) == [mine, imported, shipped]


def test_a_providers_price_is_the_one_that_would_be_used_of_its_own():
    prices = load_prices()
    assert {"aws", "azure", "gcp", "lambda"} == set(providers(prices))
    found = {name: price_at("NVIDIA H100 80GB HBM3", prices, name) for name in providers(prices)}
    assert {name: row and row.instance for name, row in found.items()} == {
        "aws": "p5.48xlarge",
        "azure": "ND96isr_H100_v5",
        "gcp": "a3-highgpu-1g",
        "lambda": "8x H100",
    }
    assert price_at("Tesla T4", prices, "azure") is None
    with pytest.raises(PriceError, match="unknown provider 'awss'; did you mean 'aws'"):
        price_at("Tesla T4", prices, "awss")


def test_the_file_that_is_written_is_read_again_as_it_was():
    rows = tuple(dataclasses.replace(row, own=True) for row in load_prices())
    rows += (euros(own=True, source='a "quoted, source"', region="zürich", usd_per_hour=0.000001),)
    assert parse_prices(to_csv(rows, where="f"), where="f", own=True) == rows
    with pytest.raises(PriceError, match="f, line 2, column source: found"):
        to_csv([price(source="in\x1b[31mvoice")], where="f")
    with pytest.raises(PriceError, match="f: too large"):
        to_csv([price(source="x" * 900)] * 4600, where="f")
