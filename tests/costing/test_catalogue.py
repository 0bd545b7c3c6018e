"""A catalogue in SkyPilot's schema, with what such files are known to hold: zones, nothing, zeros, parts, TPUs."""

import hashlib

import pytest

from explorer.costing import default_price, price_at
from explorer.costing.prices import MAX_CATALOGUE_BYTES, Catalogue, parse_catalogue
from explorer.errors import PriceError

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,GpuInfo,AvailabilityZone"
H200 = "p5en.48xlarge,H200,8.0,192.0,2048.0,63.296,{spot},us-east-1,,us-east-1{zone}"
A100 = "p4d.24xlarge,A100,8.0,96.0,1152.0,21.957642,,us-east-1,{info},us-east-1a"
INFO = "\"{{'Gpus': [{{'Name': 'A100', 'MemoryInfo': {{'SizeInMiB': {size}}}}}], 'TotalGpuMemoryInMiB': 1}}\""


def parsed(*rows: str, header: str = HEADER, **options: str) -> Catalogue:
    content = "\n".join([header, *rows, ""]).encode()
    return parse_catalogue(content, name="vms.csv", **({"provider": "aws", "retrieved": "2026-11-20"} | options))


def test_of_the_zones_of_a_region_the_cheapest_counts() -> None:
    rows = [H200.format(spot=spot, zone=zone) for spot, zone in (("30.5", "a"), ("24.1", "b"), ("", "c"))]
    content = "\n".join([HEADER, *rows, ""]).encode()
    found = parsed(*rows, H200.format(spot="9", zone="a").replace("us-east-1", "us-west-2"))
    assert [(each.region, each.tenancy, each.usd_per_hour) for each in found.prices] == [
        ("us-east-1", "on demand", 63.296),
        ("us-east-1", "spot", 24.1),
        ("us-west-2", "on demand", 63.296),
        ("us-west-2", "spot", 9.0),
    ]
    (first, _) = parsed(*rows).prices
    assert first.own and (first.provider, first.retrieved, first.effective) == ("aws", "2026-11-20", "")
    assert first.source == f"catalogue vms.csv, sha256 {hashlib.sha256(content).hexdigest()}"
    used = default_price("NVIDIA H200", found.prices)
    assert used is not None and used.usd_per_accelerator_hour == 63.296 / 8


def test_rows_that_price_no_instance_with_accelerators_are_counted() -> None:
    found = parsed(
        "m5.large,,,2,8,0.096,0.03,us-east-1,,",
        ",tpu-v4-8,1,,,12.88,3.864,us-central2,tpu-v4-8,us-central2-b",
        "NV6ads_A10_v5,A10,0.167,6,55,0.454,,eastus,,",
        "x.large,H100,1.0,8,64,,,us-east-1,,",
        "x.large,H100,1.0,8,64,0,0.0,us-east-1,,",
        "x.large,H100,1.0,8,64,nan,nan,us-east-1,,",
        "x.large,H100,1.0,8,64,2.5,0.0,us-east-1,,",
    )
    assert found.rows == 7
    assert [(each.instance, each.tenancy, each.usd_per_hour) for each in found.prices] == [
        ("x.large", "on demand", 2.5)
    ]
    assert found.skipped == {
        "without an accelerator": 1,
        "of an accelerator without an instance": 1,
        "with a part of an accelerator": 1,
        "without a price": 3,
    }


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("", "A100-40GB"),
        (INFO.format(size=40960), "A100-40GB"),
        (INFO.format(size=81920), "A100-80GB"),
        (INFO.format(size="81920.0"), "A100-80GB"),
        (INFO.format(size=80), "A100-80GB"),
        ("__import__('os')", "A100-40GB"),
    ],
)
def test_an_accelerator_of_two_sizes_prices_one_of_them(info: str, expected: str) -> None:
    """The control: under its own name it would price the other one too."""
    (found,) = parsed(A100.format(info=info)).prices
    assert found.accelerator == expected
    other = {"A100-40GB": "NVIDIA A100 80GB PCIe", "A100-80GB": "NVIDIA A100-SXM4-40GB"}[expected]
    assert price_at(other, [found], "aws") is None
    (eighty,) = parsed(A100.replace("A100", "A100-80GB").format(info="")).prices
    assert eighty.accelerator == "A100-80GB" and eighty.covers("NVIDIA A100 80GB PCIe")


def test_one_region_and_one_accelerator_can_be_asked_for() -> None:
    rows = (H200.format(spot="", zone="a"), A100.format(info=""), A100.format(info="").replace("us-east-1", "eu"))
    assert {each.accelerator for each in parsed(*rows, region="us-east-1").prices} == {"H200", "A100-40GB"}
    found = parsed(*rows, accelerator="a100")
    assert ([each.region for each in found.prices], found.skipped) == (["us-east-1", "eu"], {"not of a100": 1})
    assert parsed(*rows, region="mars").skipped == {"not in mars": 3}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (H200.format(spot="-1", zone="a"), "vms.csv, line 2, column SpotPrice: found '-1'; expected a number"),
        (H200.format(spot="1e99", zone="a"), "line 2, column SpotPrice: found '1e99'"),
        (H200.format(spot="inf", zone="a"), "line 2, column SpotPrice: found 'inf'"),
        (H200.replace("63.296", "cheap").format(spot="", zone="a"), "line 2, column Price: found 'cheap'"),
        (H200.replace("8.0", "\u0661").format(spot="", zone="a"), "line 2, column AcceleratorCount: found '\u0661'"),
        (H200.replace("p5en", "p5\x1b[2Jen").format(spot="", zone="a"), "line 2, column InstanceType: found 'p5\\x1b["),
        (H200.replace("H200", "H" * 1001).format(spot="", zone="a"), "line 2, column AcceleratorName: found 'HHH"),
        (H200.replace("p5en", "=1+").format(spot="", zone="a"), "line 2, column InstanceType: found '=1+.48xlarge'"),
        (H200.replace("us-east-1", "@x").format(spot="", zone=""), "line 2, column Region: found '@x'"),
        ("a,b,c", "line 2: 3 columns; expected 10, as in the first line"),
        ('"a', "line 2: not CSV"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(row: str, message: str) -> None:
    with pytest.raises(PriceError) as caught:
        parsed(row)
    assert message in str(caught.value)


def test_another_file_is_refused() -> None:
    with pytest.raises(PriceError, match="line 1: there is no column AcceleratorName; expected InstanceType, Accel"):
        parsed(header="InstanceType,Price")
    with pytest.raises(PriceError, match="line 1: the column Price occurs twice"):
        parsed(header=f"{HEADER},Price")
    for content, message in ((b"\xff\xfe", "not UTF-8"), (b"x" * (MAX_CATALOGUE_BYTES + 1), "too large: at most")):
        with pytest.raises(PriceError, match=message):
            parse_catalogue(content, name="vms.csv", provider="aws", retrieved="")


def test_columns_come_in_any_order_and_most_may_be_absent() -> None:
    found = parsed("2.5,8,H100,x", header="Price,AcceleratorCount,AcceleratorName,InstanceType")
    assert [(each.instance, each.count, each.region, each.usd_per_hour) for each in found.prices] == [("x", 8, "", 2.5)]
