"""The files of a statement of use in their form, of which nothing is true: a party's, and the whole."""

from explorer.provenance import usage

_DIGEST = "a" * 64
_RUN = usage.UsageRun(
    run="r",
    simulated=True,
    ledger=usage.LedgerName(origin="o", size=9, root=_DIGEST),
    checkpoint="o\n9\n",
    cosigned=(usage.Cosigned(note="n", consistency=(_DIGEST,)),),
    outcome="finished",
    steps=4,
    counted=4,
    shared=2,
    superseded=1,
    tokens=64,
    gaps=(usage.Gap(what="share", steps=2, why=usage.Untold.ERASED),),
)
_USE = usage.Use(
    run=_DIGEST,
    first=1,
    last=5,
    steps=2,
    examples=3,
    denied=1,
    unclear=0,
    tokens=192,
    layers=("stem",),
    share=0.25,
    apportioned=1,
    superseded=usage.Superseded(steps=1, examples=2),
)
_LINE = usage.Line(party="open/mit", uses=(_USE,))
_TOTAL = usage.RunTotal(run=_DIGEST, slots=4, quarantined=0, absent=0, unplaced=0)
_STATEMENT: dict[str, object] = {"payload": "", "payloadType": "t", "signatures": []}

PARTY_FILE = usage.PartyFile(
    format=usage.PARTY,
    statement=_STATEMENT,
    line=usage.ProvedLine(content=_LINE, salt=_DIGEST, index=0, proof=(_DIGEST,)),
    runs=(usage.ProvedRun(content=_RUN, index=0, proof=(), entries=(_DIGEST,)),),
)
WHOLE_FILE = usage.WholeFile(
    format=usage.WHOLE,
    statement=_STATEMENT,
    lines=(usage.SaltedLine(content=_LINE, salt=_DIGEST),),
    total=usage.SaltedTotal(content=usage.Total(total=(_TOTAL,)), salt=_DIGEST),
    runs=(_RUN,),
)
