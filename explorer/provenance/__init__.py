"""Provenance: classes of data, who may vouch for them, and which of them may train which layer.

Whom to believe is said by a trust file, which whoever checks brings along. Everything else is signed:

    keys, private        private keys in files that nobody else can read
    envelope             DSSE: bytes, their type, and who signed them
    trust, roles         the trust file: authorities, their keys and spans, revocations, how many it takes
    require              whether signatures are enough for a document, and if not, why
    authorities          how a trust file changes
    signed, drafts       records as signed documents, and as people write them
    taxonomy, branches   the tree of classes
    policy, routing      which class may train which layer, when, how strongly
    statement            in-toto statements
    tags, attestation    the class of every example, and who vouches for all of them
    grants               who may read what
    commitments, salts   what stands for numbers, and the secrets that open it
    reading_keys         what a secret gives for one stretch of a class's numbers, and a grant hands on
    sealing              blobs that only a reading key opens
    publish              the JSON Schemas of all these records

Nothing is believed by default: what a trust file or a policy does not say is refused.
"""
