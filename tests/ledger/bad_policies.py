"""Policy files that are refused, by the name of their fault, and what is said about each.

`python -m tests.ledger.bad_policies` writes them to tests/ledger/bad/.
"""

from pathlib import Path

from explorer.note import Algorithm
from tests.ledger.signers import signer

DIRECTORY = Path(__file__).parent / "bad"

LOG = signer(1).verifier.vkey
W1, W2, W3 = (signer(n, name=f"w{n}.example", algorithm=Algorithm.COSIGNATURE).verifier.vkey for n in (2, 3, 4))
W1_RENAMED = signer(2, name="other.example", algorithm=Algorithm.COSIGNATURE).verifier.vkey
LOG_AS_WITNESS = signer(1, name="w9.example", algorithm=Algorithm.COSIGNATURE).verifier.vkey
THREE = f"log {LOG}\nwitness a {W1}\nwitness b {W2}\nwitness c {W3}\n"

POLICIES: dict[str, tuple[bytes, str]] = {
    name: (text if isinstance(text, bytes) else text.encode(), message)
    for name, text, message in [
        ("empty", "", "names no log; such a policy would trust nothing"),
        ("comments_only", "# nobody\n\n", "names no log; such a policy would trust nothing"),
        ("no_log", f"witness a {W1}\nquorum a\n", "names no log"),
        ("no_quorum", THREE, "names no quorum"),
        ("two_quorums", f"{THREE}quorum a\nquorum b\n", "line 6: a second quorum, 'b'; 'a' was named before"),
        ("quorum_undefined", f"{THREE}quorum d\n", "line 5: quorum: unknown name 'd'; known: a, b, c"),
        ("quorum_before_its_group", f"{THREE}quorum g\ngroup g all a b\n", "line 5: quorum: unknown name 'g'"),
        ("quorum_of_two_names", f"{THREE}quorum a b\n", "line 5: 2 words after 'quorum'; expected quorum <name>|none"),
        ("member_undefined", f"{THREE}group g all a d\nquorum g\n", "line 5: group 'g': unknown member 'd'"),
        ("member_is_the_group", f"{THREE}group g all a g\nquorum g\n", "line 5: group 'g': unknown member 'g'"),
        ("member_is_none", f"{THREE}group g all a none\nquorum g\n", "line 5: group 'g': unknown member 'none'"),
        ("member_twice", f"{THREE}group g 2 a a\nquorum g\n", "line 5: group 'g': 'a' is a member of 'g' already"),
        (
            "member_of_two_groups",
            f"{THREE}group g all a b\ngroup h any b c\nquorum g\n",
            "line 6: group 'h': 'b' is a member of 'g' already",
        ),
        ("group_empty", f"{THREE}group g any\nquorum g\n", "line 5: group 'g': 1 of 0 members cannot be asked for"),
        ("group_all_of_nobody", f"{THREE}group g all\nquorum g\n", "line 5: group 'g': 0 of 0 members"),
        ("threshold_zero", f"{THREE}group g 0 a b\nquorum g\n", "line 5: not a threshold: '0'"),
        ("threshold_too_large", f"{THREE}group g 3 a b\nquorum g\n", "line 5: group 'g': 3 of 2 members cannot"),
        ("threshold_not_decimal", f"{THREE}group g ٢ a b\nquorum g\n", "line 5: not a threshold: "),
        ("threshold_leading_zero", f"{THREE}group g 02 a b\nquorum g\n", "line 5: not a threshold: '02'"),
        ("name_taken", f"{THREE}witness a {W1_RENAMED}\nquorum a\n", "line 5: the name 'a' is taken"),
        ("group_named_like_a_witness", f"{THREE}group a any b\nquorum a\n", "line 5: the name 'a' is taken"),
        ("witness_named_none", f"log {LOG}\nwitness none {W1}\nquorum none\n", "line 2: the name 'none' is taken"),
        (
            "key_twice_under_two_names",
            f"{THREE}witness d {W1_RENAMED}\nquorum a\n",
            "line 5: the public key of 'other.example' is listed twice ('w2.example')",
        ),
        (
            "log_twice",
            f"log {LOG}\nlog {LOG}\nquorum none\n",
            "line 2: the public key of 'example.com/run' is listed twice",
        ),
        (
            "witness_with_the_key_of_the_log",
            f"log {LOG}\nwitness a {LOG_AS_WITNESS}\nquorum a\n",
            "line 2: the public key of 'w9.example' is listed twice ('example.com/run')",
        ),
        (
            "witness_with_a_plain_key",
            f"log {LOG}\nwitness a {signer(2, name='w2.example').verifier.vkey}\nquorum a\n",
            "line 2: witness 'a' has a key for plain signatures",
        ),
        (
            "key_id_of_another_key",
            f"log {LOG[:16]}00000000{LOG[24:]}\nquorum none\n",
            "line 1: example.com/run: key id 00000000 is not of this name and key",
        ),
        ("key_is_no_key", "log example.com/run\nquorum none\n", "line 1: not a verifier key: 'example.com/run'"),
        ("unknown_definition", f"{THREE}witnes d {W1}\nquorum a\n", "line 5: unknown definition 'witnes'; did you"),
        ("upper_case", f"LOG {LOG}\nquorum none\n", "line 1: unknown definition 'LOG'"),
        ("too_many_words", f"log {LOG} https://example.com/ more\nquorum none\n", "line 1: 3 words after 'log'"),
        ("carriage_returns", f"log {LOG}\r\nquorum none\r\n", "line 1: control character 0x0d"),
        ("cut_off", f"{THREE}group ab all a b\nquorum a", "the last line does not end in a newline"),
        ("name_too_long", f"log {LOG}\nwitness {'a' * 201} {W1}\nquorum none\n", "line 2: not a name: 'aaa"),
        ("word_too_long", f"log {LOG} {'u' * 2001}\nquorum none\n", "line 1: a word of more than 2000 characters"),
        ("no_break_space", f"log\u00a0{LOG}\nquorum none\n", "line 1: unknown definition 'log\\xa0"),
    ]
}


def main() -> None:
    for name, (content, _) in POLICIES.items():
        (DIRECTORY / f"policy_{name}.tlog-policy").write_bytes(content)


if __name__ == "__main__":
    main()
