"""What a policy calls confidential is sealed, and nowhere beside the ledger either: anybody can check it, without keys.

Blobs of a confidential class and, in a run that has one, blobs of numbers over several classes have to be sealed, and
no other blob may be: sealing what no policy calls confidential withholds it. The spool has no row of such a class, and
no number that several classes made.
"""

from explorer import rundir
from explorer.audit.conditions import Judgement
from explorer.entries.envelope import read_head
from explorer.ledger.storage import blob_path
from explorer.provenance.routing import Routing, confidential
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, claims_seal, class_of
from explorer.store.spool import CONTRIBUTIONS, ENTROPY, select

_TERMS = ("share_num", "share_den", "update_num", "update_sq", "exact_num")  # that several classes made


def check_confidential(run: RunLedger, routing: Routing, judgement: Judgement) -> None:
    """Judge the blobs that are here, and the spool."""
    classes = confidential(routing, run.genesis.classes)
    sealed = classes | {JOINT} if classes else frozenset[str]()
    for index, leaf in enumerate(run.ledger.entries()):  # those that were executed again too
        with judgement.looking():
            for name, blob in read_head(leaf).blobs.items():
                of = class_of(name)
                if of is None or not (run.ledger.path / blob_path(blob.sha256)).exists():
                    continue
                is_sealed = claims_seal(run.ledger.path, blob.sha256)
                if of not in sealed and is_sealed:
                    judgement.contradict(index, f"{name}: sealed, and the policy does not call it confidential")
                elif of in sealed:
                    judgement.count("sealed blobs")
                    if not is_sealed:
                        judgement.contradict(index, f"{name}: in the clear, and the policy calls it confidential")
    if not classes:
        return
    for directory, columns in ((rundir.CONTRIBUTIONS, CONTRIBUTIONS), (rundir.ENTROPY, ENTROPY)):
        with judgement.reading():
            counted = "+".join(f"count({name})" for name in _TERMS if name in columns) or "0"
            rows = select(run.run / directory, columns, f"SELECT class, {counted} FROM spool GROUP BY class ORDER BY 1")
            for path, terms in rows:
                if path in sealed:
                    judgement.contradict(None, f"{directory}: numbers of {path} in the clear, which are confidential")
                elif terms:
                    judgement.contradict(None, f"{directory}: numbers of {path} that confidential classes are part of")
