"""The dataset that a run was trained on, as MLCommons Croissant: what its signed tags and their attestation say of it.

The examples themselves are nowhere in a run's directory; what is described is the tag table, with a commitment, a class
and a source for every example, and the classes as the taxonomy defines them.
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
    description="A row for each example: what it commits to, its class, where it came from, who vouches for that.",
    columns=(
        Column(name="commitment", type="sc:Text", description="SHA-256 of a salt and the example, 32 bytes."),
        Column(name="class", type="sc:Text", description="A class of the taxonomy."),
        Column(name="source", type="sc:Text", description="Where the example came from; never a person."),
        Column(name="authority", type="sc:Text", description="Who vouches for the row."),
    ),
    key="commitment",
    file=0,
)
CLASSES = (
    Column(name="path", type="sc:Text", description="The class's place in the taxonomy."),
    Column(name="definition", type="sc:Text", description="What it means, as the signed taxonomy says."),
    Column(name="personal_data", type="sc:Boolean", description="Whether examples of it may hold personal data."),
    Column(name="source", type="sc:Text", description="Where it comes from, by the regulator's category."),
    Column(name="examples", type="sc:Integer", description="Tagged examples."),
)


def as_croissant(run: ReportedRun) -> str:
    """Return the document. Raises `StoreError` for a run whose tags are not believed or were never signed."""
    if run.vouchers is None:
        raise StoreError(f"run {run.run_id}: there is no dataset to describe: {run.not_vouched}")
    tags, classes = run.vouchers.tags, run.of(TaxonomySection).taxonomy
    described, attestation = tags.table.description, run.ledger.run / rundir.GOVERNANCE / ATTESTATION_FILE
    personal = [line.path for line in classes if line.personal_data and line.records]
    document = croissant(
        name=described.title,
        description=described.description,
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
                description="The attestation of the tag table, signed by those who vouch for its tags.",
            ),
        ],
        records=[
            TAGS,
            Records(
                name="classes",
                description="The classes, with the number of examples that are tagged with each.",
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
