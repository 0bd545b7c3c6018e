"""The command line: it parses, wires parts that do not know each other, and prints. No verb computes anything itself.

Imports of parts stand inside the verbs, and only here: `explorer sweep status` must not wait for torch.
"""
