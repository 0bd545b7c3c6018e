"""The command line: it parses, connects parts that do not know each other, and shows. No verb computes anything itself.

`verbs.py` is the table of all verbs. A verb is imported when it is called: `explorer sweep status` must not wait for
torch.
"""
