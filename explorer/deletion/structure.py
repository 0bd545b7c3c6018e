"""What a certificate of G2 says: the target lived in regions of its own, these were dropped, and all the rest was kept.

Nothing of it needs a tensor: both ledgers list the leaf of every tensor that they end with, and their signed roots
follow from these lists.
"""

from explorer.deletion.case import Case
from explorer.deletion.checks import Claim, differ
from explorer.errors import LedgerError
from explorer.provenance.deletion_certificate import Roots, Structure
from explorer.runlog.influence import Reach
from explorer.runlog.model_file import differences
from explorer.runlog.tensors import Tensors, owner_of, without_bookkeeping


def structure_of(case: Case) -> tuple[Structure, Tensors]:
    """What the two ledgers say for themselves: what the target's regions hold, and all tensors that are kept."""
    old, _ = case.ended
    everything = [*old.tensors.parameters, *old.tensors.buffers, *old.tensors.optimizer]
    dropped = {name for name in everything if owner_of(name, case.policy.sealed) in case.reach.regions}
    kept = without_bookkeeping(old.tensors, case.old.genesis).kept(lambda name: name not in dropped)
    parameters, buffers, optimizer = kept.roots
    roots = Roots(parameters=parameters, buffers=buffers, optimizer=optimizer)
    return Structure(dropped=tuple(sorted(dropped)), kept=roots), kept


def isolated(case: Case) -> str | None:
    """By the old ledger the target moved its own regions alone, lived there alone, and decided nothing."""
    if case.unseen:
        return case.unseen
    if fault := _entangled(case.reach):
        raise LedgerError(f"{case.target.words}: {fault}")
    return None


def dropped(case: Case) -> str | None:
    """The dropped tensors are all those of the target's regions."""
    found, _ = structure_of(case)
    certified = _certified(case).dropped
    if certified != found.dropped:
        more, less = sorted({*certified} - {*found.dropped}), sorted({*found.dropped} - {*certified})
        words = [f"{names[0]} {what}" for names, what in ((more, "is none"), (less, "is missing")) if names]
        raise LedgerError(
            f"the target's regions hold {len(found.dropped)} tensors, certified as dropped are {len(certified)}: "
            f"{', '.join(words) or 'in another order'}"
        )
    return None


def kept(case: Case) -> str | None:
    """Every other tensor of the old run's end is one of the new run's, and no other is."""
    found, expected = structure_of(case)
    _, new = case.ended
    if fault := _difference(new.tensors, expected):
        raise LedgerError(f"the new run's end: {fault}")
    differ(LedgerError, "the certified roots of what was kept", found=_certified(case).kept, expected=found.kept)
    return None


def nothing_trained(case: Case) -> str | None:
    """The new ledger has no step: it begins with what it ends with, where the old one ended."""
    old, new = case.ended
    genesis = case.new.genesis
    differ(LedgerError, "steps that the new ledger takes over", found=genesis.begins, expected=case.old.steps)
    differ(LedgerError, "steps that it ends after", found=case.new.steps, expected=case.old.steps)
    if len(case.new.outline.states) or case.new.outline.decisions or case.new.outline.profiles:
        raise LedgerError("the new ledger has more than a beginning and an end, and nothing was to happen between")
    differ(LedgerError, "the state that it begins with", found=genesis.start, expected=new.end.entry.state)
    random, expected = new.end.entry.state.random, old.end.entry.state.random
    differ(LedgerError, "its streams of random numbers", found=random, expected=expected)
    return None


CLAIMS = (
    Claim("isolated", "by the old ledger the target moved its own sealed regions alone, and decided nothing", isolated),
    Claim("dropped", "what was dropped is what these regions hold, all of it", dropped),
    Claim("kept", "every other parameter, buffer and optimiser state is bit for bit the old one", kept),
    Claim(
        "nothing trained", "the new ledger begins with the kept state, and nothing was trained after", nothing_trained
    ),
)


def _certified(case: Case) -> Structure:
    assert case.certificate.structure is not None  # a certificate of G2 has it
    return case.certificate.structure


def _difference(found: Tensors, expected: Tensors) -> str | None:
    """The first tensor that is another one, in words; None: all are the same, name by name."""
    for group in ("parameters", "buffers", "optimizer"):
        fault = next(differences(getattr(found, group), getattr(expected, group)), None)
        if fault:
            return f"{group}: {fault}"
    return None


def _entangled(reach: Reach) -> str | None:
    """Why dropping regions does not undo all that the target reached; None: it does."""
    if reach.structural:
        return None
    if reach.shared:
        layer, *more = reach.shared
        others = f" and {len(more)} more layers" if more else ""
        return f"trained {layer}{others} outside of sealed regions, first in step {reach.first}"
    for region, others in reach.regions.items():
        if others:
            return f"its region {region!r} is that of {', '.join(others)} too"
    if reach.channels:
        channel = reach.channels[0]
        return f"entry {channel.entry}: its numbers decided a {channel.action} over {', '.join(channel.over)}"
    if reach.probed:
        return "its examples may have been probes that decided something"
    return f"only some examples of {', '.join(reach.partly)} are in it, and a region is a class's"
