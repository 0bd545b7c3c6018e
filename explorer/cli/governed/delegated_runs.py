"""`explorer ledger countersign`: what remains to be done at home for a run that another machine executed."""

from explorer.cli import options
from explorer.cli.signing import keys_for
from explorer.page.terminal import Answer
from explorer.provenance.trust import read_trust
from explorer.runlog.countersign import countersign as sign_too
from explorer.runlog.run_ledger import RunLedger


def countersign(
    run: options.RunDirectory,
    trust: options.TrustFile,
    key: options.SigningKeys = None,
    passphrase_file: options.PassphraseFile = None,
) -> Answer:
    """Sign with the trainer's own key what a delegated key has signed.

    The ledger of a run that another machine executed is signed by a key of its own, which counts until its delegation
    ends. The whole ledger is verified first. With the trainer's signature it counts for as long as the trainer's key,
    and a proof of one entry can be checked without the ledger. A ledger that the trainer has signed stays as it is.
    """
    trusted, now = read_trust(trust), options.clock()
    ledger = RunLedger(run).ledger
    keys = keys_for(run, key or [], passphrase_file, trust=trusted, now=now)
    trainer = sign_too(ledger, keys=keys, trust=trusted, now=now)
    words = "its trainer's own key has signed it" if trainer is None else f"signed by {trainer}, who had delegated it"
    return Answer(
        page=lambda: [f"{ledger.path}: {words}"],
        record=lambda: {"ledger": str(ledger.path), "delegated_by": trainer},
    )
