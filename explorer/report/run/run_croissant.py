"""The training dataset of a run as MLCommons Croissant, according to its signed tags and their attestation.

A run's directory never holds the examples themselves. The document describes the tag table, which has a commitment, a
class and a source for every example, and the classes as the taxonomy defines them.
"""

import hashlib
import json

from explorer import rundir
from explorer.errors import StoreError
from explorer.provenance.description import DSSE, PARQUET, Column, Description, File, Records, croissant
from explorer.provenance.tag_attestation import read_attestation
from explorer.report.run.head_section import SIMULATED
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.taxonomy_section import TaxonomySection
from explorer.runlog.documents import ATTESTATION_FILE, TABLE_FILE

TAGS = Records(
    name="tags",
    description="A row for every example: its commitment, class and source, and the authority that vouches for it.",
    columns=(
        Column(name="commitment", type="sc:Text", description="SHA-256 of a salt and the example, 32 bytes."),
        Column(name="class", type="sc:Text", description="A class of the taxonomy."),
        Column(name="source", type="sc:Text", description="The source of the example; never a person."),
        Column(name="authority", type="sc:Text", description="The authority that vouches for the row."),
    ),
    key="commitment",
    file=0,
)
CLASSES = (
    Column(name="path", type="sc:Text", description="The class's place in the taxonomy."),
    Column(name="definition", type="sc:Text", description="Its meaning, according to the signed taxonomy."),
    Column(name="personal_data", type="sc:Boolean", description="True if its examples may hold personal data."),
    Column(name="source", type="sc:Text", description="Its source, by the regulator's categories."),
    Column(name="examples", type="sc:Integer", description="The number of examples that are tagged with it."),
)


def as_croissant(run: ReportedRun) -> str:
    """Return the document. Raises `StoreError` for a run whose tags are not trusted or were never signed."""
    if run.vouchers is None:
        raise StoreError(f"run {run.run_id}: no dataset to describe: {run.not_vouched}")
    tags, classes = run.vouchers.tags, run.of(TaxonomySection).taxonomy
    described, attestation = tags.table.description, run.ledger.run / rundir.GOVERNANCE / ATTESTATION_FILE
    personal = [line.path for line in classes if line.personal_data and line.records]
    document = croissant(
        name=described.title,
        description=described.description,
        # Names that Croissant defines; a fact that is None is left out.
        facts={
            "identifier": described.identifier,
            "url": described.location if described.location.startswith("https://") else None,
            "license": described.licence,
            "creator": {"@type": "sc:Organization", "name": described.issuer},
            "datePublished": described.issue_date,
            "isBasedOn": described.source_metadata,
            "rai:dataCollection": _collected(described),
            "rai:dataPreprocessingProtocol": described.privacy_technologies,
            "rai:dataUseCases": described.intended_use,
            "rai:personalSensitiveInformation": [f"{path} may hold personal data" for path in personal],
            "rai:dataLimitations": SIMULATED if run.simulated else None,
        },
        files=[
            File(
                path=f"{rundir.GOVERNANCE}/{TABLE_FILE}",
                sha256=tags.file,
                encoding=PARQUET,
                description="The tag table.",
            ),
            File(
                path=f"{rundir.GOVERNANCE}/{ATTESTATION_FILE}",
                sha256=hashlib.sha256(read_attestation(attestation)).hexdigest(),
                encoding=DSSE,
                description="The attestation of the tag table, signed by the authorities that vouch for its tags.",
            ),
        ],
        records=[
            TAGS,
            Records(
                name="classes",
                description="The classes, with the number of tagged examples.",
                columns=CLASSES,
                key="path",
                rows=[
                    {
                        "path": line.path,
                        "definition": line.definition,
                        "personal_data": line.personal_data,
                        "source": str(line.source),
                        "examples": line.records or 0,
                    }
                    for line in classes
                ],
            ),
        ],
    )
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _collected(described: Description) -> str:
    said = [described.method, f"generated {described.generated.first} to {described.generated.last}"]
    said += [f"origin: {described.origin_geography}", *([f"source: {described.source}"] if described.source else [])]
    return "; ".join(said)
