"""`explorer delete certify`: certify a deletion, once its ledger has the cosignatures that the trust file asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import TrustFile, clock, provide_passphrase
from explorer.cli.output import from_here, print_json, visible
from explorer.cli.settings import Json

if TYPE_CHECKING:
    from explorer.deletion.conclude import Concluded
    from explorer.provenance.deletion_certificate import NotReached

YEAR = 365 * 86_400

New = Annotated[Path, typer.Argument(metavar="NEW", help="The run that the deletion made.")]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Of the certificate. Default: a year from now.")
]
Private = Annotated[
    Path | None,
    typer.Option("--governance", metavar="DIR", help="Where the run's salts and the trainer's key are now."),
]


def certify(
    new: New,
    old: Annotated[Path, typer.Option("--old", metavar="RUN", help="The run that had the target.")],
    trust: TrustFile,
    expires: Expires = None,
    governance: Private = None,
    json: Json = False,
) -> None:
    """Certify a deletion that `explorer delete run` has made, and put it on record in the project's ledger.

    The certificate is verified before it is written, as `explorer delete verify` does for anybody.
    """
    from explorer import rundir
    from explorer.deletion.beyond import beyond
    from explorer.errors import RunError
    from explorer.runlog.documents import TRAINER_FILE, source_of
    from explorer.runlog.influence import Presence, reach_of
    from explorer.runlog.run_ledger import RunLedger
    from explorer.runlog.target import read_origin

    origin = read_origin(new)
    if origin is None:
        raise RunError(f"{new}: made by no deletion: there is no {rundir.ORIGIN}")
    provide_passphrase((Path(source_of(new).private) if governance is None else governance) / TRAINER_FILE)
    presence = Presence(RunLedger(old))
    missed = beyond(presence, reach_of(presence, origin.target))
    conclude_and_print(old, new, trust=trust, expires=expires, private=governance, not_reached=missed, json=json)


def conclude_and_print(
    old: Path,
    new: Path,
    *,
    trust: Path,
    expires: str | None,
    private: Path | None,
    not_reached: "tuple[NotReached, ...]",
    json: bool,
) -> None:
    """Certify, and say what came out. The passphrase of the trainer's key is known by now."""
    from explorer.deletion.conclude import conclude
    from explorer.provenance.times import format_time
    from explorer.provenance.trust import read_trust
    from explorer.runlog.documents import trainer_key

    believed, now = read_trust(trust), clock()
    name, key = trainer_key(new, trust=believed, now=now, private=private)
    done = conclude(
        old,
        new,
        name=name,
        key=key,
        trust=believed,
        now=now,
        expires=expires or format_time(now + YEAR),
        not_reached=not_reached,
    )
    if json:
        print_json(_json(done, new))
    else:
        print(visible("\n".join(_lines(done, new))))


def _lines(done: "Concluded", new: Path) -> list[str]:
    """What came out, what is to be destroyed, what was not reached."""
    from explorer.deletion.conclude import CERTIFICATE, DESTROY
    from explorer.provenance.deletion_certificate import MEANS, UNREACHED

    value, files, here = done.certificate.value, done.destroy.files, from_here(new)
    lines = [
        f"{new.name}: {value.level}, deleted, by both ledgers. {MEANS[value.level]}",
        f"  {here}",
        f"  certificate: {here / CERTIFICATE}, entry {done.entry} of the project's ledger",
        f"  to be destroyed by you, of {done.destroy.run}: {len(files)} files, listed in {here / DESTROY}",
        "  never ship both models: their difference is what was deleted",
        "  not reached:",
    ]
    return [*lines, *(f"    {each.what}: {UNREACHED[each.what]}" for each in value.not_reached)]


def _json(done: "Concluded", new: Path) -> dict[str, Any]:
    from explorer.deletion.conclude import CERTIFICATE
    from explorer.schema import to_json

    value = done.certificate.value
    return {
        "run": new.name,
        "directory": str(new),
        "level": value.level,
        "deleted": True,  # a certificate that does not verify is never written
        "certificate": {"file": str(new / CERTIFICATE), "digest": done.certificate.digest},
        "entry": done.entry,
        "not_reached": [to_json(each) for each in value.not_reached],
        "to_destroy": to_json(done.destroy)["files"],
    }
