"""The meaning of a ledger's entries: their kinds, as frozen, versioned records with published schemas.

A ledger carries bytes. Here those bytes are one JSON object in RFC 8785 form, at most 65,535 of them. This is one, here
in two lines:

    {"action":"re-execution","blobs":{},"condition":null,"evidence":{},"kind":"decision","layers":[],"parameters":{},
    "rule":"other-bits","step":40,"subjects":[],"version":1}

Three keys are in every kind:

    kind      what the entry is          version   of the kind's format, a whole number from 1
    blobs     {name: {"sha256", "size"}}: content too large for an entry, or content that can be destroyed later

There are no fractions: a floating-point number is written exactly, as `float.hex()` text ("0x1.8000000000000p+1",
"nan", "inf"). Keys are ASCII, whole numbers stay below 2**53, and nothing is a wall clock: time comes from
cosignatures. (The moment for which a run's documents were judged, in its genesis, is an input like its seed.) A kind or
version that is not known here is kept and reported, never dropped; its blobs can be checked all the same.

    genesis, step, profile, state, decision, end     in the ledger of a run        (kinds.py, in the order of heads.py)
    access, deletion, erasure, grant, observation    in the ledger of a project    (kinds.py)

The numbers of a class are never in an entry. A `step` carries, for each class, a commitment to that class's numbers:
SHA-256(salt || content), with a salt that follows from a secret of the class and the step (provenance/commitments.py).
The content is in a blob `numbers/<class>`. A reader of one class can check it; destroying the class's
secret and its blobs erases the numbers, and every proof still holds. An `erasure` says that this was done. Totals over
classes are left out of entries for the same reason: with all classes but one they give the last one away.

`README.md` specifies all of it for writers in other frameworks. `schemas/<kind>.v<version>.json` are the published JSON
Schemas, made from the records by

    python -m explorer.entries.entry_schemas
"""
