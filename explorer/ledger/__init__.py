"""The ledger: an append-only Merkle log in a directory, which does not know what an entry means.

What follows specifies the format down to the bytes. It is C2SP tlog-tiles (c2sp.org/tlog-tiles) with tlog-checkpoint,
signed-note, tlog-cosignature and tlog-proof, so that other people's tools read and verify it; where it goes beyond them
or stays behind, it says so. All numbers in binary are big-endian, hashes are SHA-256, text is UTF-8.

Layout
------

    checkpoint                              size and root of the tree, signed; replaced at every commit
    tile/<level>/<number>                   256 hashes of the tree; never changed
    tile/<level>/<number>.p/<width>         the same at the right edge, fewer; removed once the full tile is there
    tile/entries/<number>                   256 entries; never changed
    tile/entries/<number>.p/<width>         the same at the right edge, fewer
    blobs/sha256/<xx>/<digest>              content too large for an entry; xx are the first two digits of the digest
    witness/<name>+<key id>.note            the checkpoint that a witness has cosigned last, with its cosignature
    policy.tlog-policy                      a proposal of keys to trust; a verifier asks its caller instead
    unsigned/<n>/...                        files beyond the checkpoint that a writer met when it opened the ledger
    .lock                                   held by the process that writes
    .<name>.<process>.tmp                   a file that is being written

A <level> is a decimal number. A <number> is written in groups of three digits, all but the last with an x in front: 5
is 005, 1234067 is x001/x234/067. A <width> is 1 to 255. No file of a ledger is a link, and no link is followed.

Hashing
-------

As RFC 6962, 2.1 has it (`explorer.merkle`): a leaf is SHA-256(00 || entry), a node SHA-256(01 || left || right), the
root over no entries SHA-256(""). A tree of n > 1 leaves splits at the largest power of two below n.

Entries and bundles
-------------------

An entry is 0 to 65,535 bytes. By convention it is one JSON object in RFC 8785 form; nothing here looks into it. Bundle
n holds entries [n * 256, (n + 1) * 256), each as its length (2 bytes) and its bytes, with nothing before, between or
behind. A tree of s entries has floor(s / 256) full bundles and, unless s mod 256 = 0, one partial bundle of width s mod
256.

Tiles
-----

Hash i of tile n at level l is the root of the complete subtree over leaves [(n * 256 + i) * 256**l,
(n * 256 + i + 1) * 256**l); it is at byte 32 * i. A tree of s entries has floor(s / 256**l) such hashes at level l,
and a tile, the last of them partial, for every 256. Partial tiles are not hashed upward; there are no empty ones.

tlog-tiles says: "Logs MUST serve partial tiles corresponding to tree sizes for which a checkpoint was produced, but MAY
delete any partial tile once the corresponding full tile is available." So does this log, for bundles too: partials go
with the first commit after the one that made the tile full. A log that commits every entry therefore holds up to 255
partials a level, half a full tile or bundle each. A narrower file is the beginning of a wider one: where a partial is
gone, as in directories that older versions wrote, `LedgerDirectory` cuts it out of that.

Checkpoint
----------

A signed note (`explorer.note`), its text three lines: origin, size in decimal, root in base64. Further lines are kept
and mean nothing here. The key that signs is of type 01, Ed25519, and bears the origin as its name; only a log of other
software whose origin cannot name a key, since it has a space or a plus in it, has a key of another name. A new ledger
has a checkpoint of size 0. Two checkpoints of one key are always consistent: the later tree extends the earlier one. There is
no time in a checkpoint, and the writer asks no clock: time comes from cosignatures.

Cosignatures
------------

Of type 04: Ed25519 over "cosignature/v1\\n", "time <decimal>\\n" and the checkpoint's text. It states that this was the
largest tree of the log that its key had seen at that time, and that it extended all it had seen before. Cosignatures
are in the notes below `witness/`, since only the writer replaces `checkpoint`; those of the same text count as if they
were in `checkpoint`. A note of a smaller size shows what its witness saw then, and the tree has to agree with that too.
The <name> of a note is that of the key, with _ for every character but letters, digits, full stops and hyphens. A file
with the name of a witness that the verifier knows has to be that witness's note. Any other file counts if it is valid;
if it is not, or if there are more than 100, the verifier lists it and continues. Of several cosignatures of one key, any
that counts is enough.

Blobs
-----

Content that an entry names by its SHA-256. A blob is on the disk before the entry that names it is appended, is at most
1 GiB, and is hashed each time it is read. Which entries name which blobs is unknown to the ledger.

Writing, and what a crash leaves
--------------------------------

One process writes, holding `.lock`. A commit writes what became full and the partial edge as new files, flushes files
and directories, then signs, writes the checkpoint next to its place, flushes it, renames it into place, and removes the
partials of tiles that were full at the last checkpoint. An entry is acknowledged when the commit has returned. Only the
log's own files are flushed, each of them, and every directory that got a new name; no other program's writes are waited
for.

    the crash comes                  it leaves                          the next opening
    while files are written          files beyond the checkpoint,       moves them to unsigned/<n>/ and signs no byte of
                                     the last one in part perhaps       them; they were never acknowledged
    while the checkpoint is written  .checkpoint.<process>.tmp          puts it in place if it is whole, signed, and of
                                                                        the tree that is here; moves it to unsigned/<n>/
                                                                        if it is not whole; refuses if it is another's
    after it is in place             needless partials                  removes them at its next commit

An opening after no crash does the same and finds nothing. What is in `unsigned/` may be deleted once it is known why it
is there: a crash is one reason, a checkpoint that was replaced by an older one is another.

The lock holds among the processes of one machine. Writing on in two copies of the directory, or in an older
one, forks the log: the writer refuses to, as far as a note below `witness/` shows it, and cannot see more.

Over HTTP
---------

`export` and `serve` give out `checkpoint`, with the cosignatures of `witness/`, and `tile/` as tlog-tiles has it; bundles
are sent as gzip. A witness speaks tlog-witness (`explorer.ledger.witness`), and so does who asks one (`submit`). What a
witness answers is in `witness/` afterwards, as if it had cosigned in this directory.

What is authenticated
---------------------

The checkpoint's text by its signatures; by its root every byte of every bundle and of every tile up to its size, those
of superseded partials too, as the verifier derives all of them from the entries; each cosignature with its time; a blob
by the digest in its name. No signature and no hash covers:

    - signature lines of keys that the verifier does not know, their order, and a line that is there twice
    - a note below witness/ that no known key has signed, and the name of any of these files
    - tiles and bundles beyond the size of the checkpoint; everything in unsigned/; temporary files; the lock
    - policy.tlog-policy; the line `extra` of a proof file, unless it is the entry that is proved
    - whether a blob that an entry names is there, and whether any entry names a blob that is there
    - owner, mode and times of files; directories without files

A changed byte there is not noticed, or noticed as a file that does not belong. A whole ledger that is replaced by its
earlier state is noticed only by a holder of a later checkpoint. No log proves that its entries are
true.

Known answers
-------------

RFC 6962's test vectors, leaves "", 00, 10, 2021, 3031, 40414243, 5051525354555657, 606162636465666768696a6b6c6d6e6f in
hexadecimal digits; size and root:

    0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    1 6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
    2 fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125
    3 aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77
    8 5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328

The last one signed with the key whose seed is 32 times 01, and cosigned at 1700000000 with the one of 32 times 02:

    example.com/explorer-kat
    8
    XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=

    — example.com/explorer-kat i6j8fcDauy4nLkfRrC6RwUpn7FI9oInPlr7PU7+rkYA+2CjBuUgEMJTJvJ+1IGNQFHSjU69Q/AvcsAihH6nrK5iB8AA=
    — witness.example/dg Z1sXeAAAAABlU/EAgcJ54weaGCLQp5iB78A154BDyiIzypFL17vUXCVa3mrXgZ/Nj8lbIRXzZPZ/VYFR1rG8LGsinbJdSShXhrVsAw==

These keys as verifier keys:

    example.com/explorer-kat+8ba8fc7d+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c
    witness.example/dg+675b1778+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU

A worked example
----------------

A ledger of three entries under the same two keys, the first one here with the name example.com/run:

    {"n":0}
    {"n":1}
    {"blob":"34d1b6ad2abc475ab3cfbbab5634c82d4c8f4f4c70d445fa8c1260e05540423d"}

All its files; a line of text ends in a newline, and hexadecimal digits are given 32 bytes a line.

tile/entries/000.p/3 (hexadecimal):

    00077b226e223a307d00077b226e223a317d004b7b22626c6f62223a22333464
    3162366164326162633437356162336366626261623536333463383264346338
    6634663463373064343435666138633132363065303535343034323364227d

tile/0/000.p/3 (hexadecimal):

    f94070abfd2da0bf72902eb13a808e794f954d9e2745c682a158f6ed0d4ac036
    fb5d93e6cf90bc9470cd9ea9d9e12348993db3e854ab2b7660e3594767045f6c
    f0b2b3845aedcb7f4a14fe0e21419edcbbc00d641e357f466be93e985573ed65

checkpoint (text):

    example.com/run
    3
    H5SH8FZ7zaC3a7N5EL5gc25LT/2ZyeY/BpF5pqqkOnk=

    — example.com/run 1TvsbW3ootE2LnuOw6Lk0CvGyYKDtjsyvq8BEeUl1XCdusJVMogvyjwIdlEJ6QBQV8BJT7EdIosN64b/LmaZMhtetQw=

witness/witness.example_dg+675b1778.note (text):

    example.com/run
    3
    H5SH8FZ7zaC3a7N5EL5gc25LT/2ZyeY/BpF5pqqkOnk=

    — example.com/run 1TvsbW3ootE2LnuOw6Lk0CvGyYKDtjsyvq8BEeUl1XCdusJVMogvyjwIdlEJ6QBQV8BJT7EdIosN64b/LmaZMhtetQw=
    — witness.example/dg Z1sXeAAAAABlU/EABxrrQrwclxY+QDx9oNW+xxB9g8Vl3gYNYk0Tm5wQjHOsY1/lluesYArfgAOC9IaQ71P9yVo0MK+5/BQPlK8ACA==

blobs/sha256/34/34d1b6ad2abc475ab3cfbbab5634c82d4c8f4f4c70d445fa8c1260e05540423d (text):

    bulk

The proof that entry 1 is in it, as a file for a reader with only this file, entry 1 and the keys:

1.tlog-proof (text):

    c2sp.org/tlog-proof@v1
    extra eyJuIjoxfQ==
    index 1
    +UBwq/0toL9ykC6xOoCOeU+VTZ4nRcaCoVj27Q1KwDY=
    8LKzhFrty39KFP4OIUGe3LvADWQeNX9Ga+k+mFVz7WU=

    example.com/run
    3
    H5SH8FZ7zaC3a7N5EL5gc25LT/2ZyeY/BpF5pqqkOnk=

    — example.com/run 1TvsbW3ootE2LnuOw6Lk0CvGyYKDtjsyvq8BEeUl1XCdusJVMogvyjwIdlEJ6QBQV8BJT7EdIosN64b/LmaZMhtetQw=
    — witness.example/dg Z1sXeAAAAABlU/EABxrrQrwclxY+QDx9oNW+xxB9g8Vl3gYNYk0Tm5wQjHOsY1/lluesYArfgAOC9IaQ71P9yVo0MK+5/BQPlK8ACA==
"""  # noqa: E501 (a signature line is as long as it is)
