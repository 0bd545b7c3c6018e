"""Provenance: classes of data, who may vouch for them, and which of them may train which layer.

A trust file lists the authorities to believe; each checker has its own. Everything else is signed:

    keys, agent              private keys, in files that only their owner can read, or in an SSH agent
    spellings                how records spell moments, digests, text and class paths
    envelope, statement      DSSE: bytes, their type, and who signed them; in-toto statements
    trust                    the trust file: authorities, their keys and spans, revocations, quorums, changes
    signing                  signed records: documents, claims and drafts; whether their signatures are enough
    taxonomy                 the tree of classes
    regions                  the parts of a model, of a training and of a class that policies name
    policy, routing_weights  which class may train which layer, when, how strongly; the weights of one run
    findings                 probable mistakes in a policy
    tags, tags_file          the class of every example, and the Parquet file that holds them
    tag_records              records to be tagged
    tag_attestation          who vouches for all tags of a table
    description              what a dataset is
    grants                   who may read what
    commitments, encryption  salted commitments, and blobs that only a reading key opens
    model_attestation        attestations of models, and observations about them
    deletion_certificate, usage, levels    signed claims about deletions and use
    provenance_schemas       the JSON Schemas of all these records

Nothing is believed by default: whatever a trust file or a policy does not allow is refused.
"""
