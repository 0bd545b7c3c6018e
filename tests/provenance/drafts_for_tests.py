"""Taxonomies and policies for tests: a small tree, the shipped examples, and policies drawn at random."""

from pathlib import Path

from hypothesis import strategies as st

from explorer.provenance.policy import FORMAT as POLICY_FORMAT
from explorer.provenance.policy import Quarantine, RoutingPolicy, Rule, TaxonomyReference, check_policy
from explorer.provenance.regions import Layer, SealedRegion, depths_of
from explorer.provenance.routing_weights import Routing, bind
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import Source, Taxonomy, TaxonomyClass, read_taxonomy
from explorer.yaml_document import read_document

EXAMPLES = Path(__file__).parents[2] / "notebooks" / "policies"

ISSUED = "2026-05-01T00:00:00Z"
EXPIRES = "2026-12-01T00:00:00Z"

CLASSES = ("open", "open/bsd", "open/mit", "open-data", "personal", "personal/customer")
LAYERS = depths_of(["embed", "body.0", "body.1.conv", "side.news", "side.news.fc", "head"])
CONDITIONS = ("settled", "late")
ENDS = (0.0, 0.25, 1 / 3, 0.5, 0.75, 1.0)


def taxonomy(*paths: str, version: int = 1) -> Taxonomy:
    """A tree of these classes, or of the usual ones."""
    classes = tuple(
        TaxonomyClass(path=path, definition=f"What is {path}.", personal_data=False, source=Source.PUBLIC)
        for path in paths or CLASSES
    )
    return Taxonomy(
        format=TAXONOMY_FORMAT, name="small", version=version, issued=ISSUED, expires=EXPIRES, classes=classes
    )


TREE = taxonomy()


def policy(
    *rules: Rule,
    tree: Taxonomy = TREE,
    conditions: tuple[str, ...] = CONDITIONS,
    sealed: tuple[SealedRegion, ...] = (),
) -> RoutingPolicy:
    """A policy of these rules for the usual tree."""
    made = RoutingPolicy(
        format=POLICY_FORMAT,
        name="drawn",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=tree.name, version=tree.version, digest=tree.digest),
        quarantine=Quarantine.REFUSE,
        conditions=conditions,
        sealed=sealed,
        rules=rules,
    )
    check_policy(made, "drawn")
    return made


def routing(*rules: Rule, sealed: tuple[SealedRegion, ...] = ()) -> Routing:
    """These rules, ready to be asked."""
    return bind(policy(*rules, sealed=sealed), TREE, where="drawn")


def example_taxonomy() -> Taxonomy:
    """The taxonomy that ships as an example."""
    return read_taxonomy(read_document(EXAMPLES / "licences.taxonomy.yaml"))


def intervals() -> st.SearchStrategy[tuple[float, float]]:
    return st.sampled_from([(start, end) for start in ENDS for end in ENDS if start < end])


def rules() -> st.SearchStrategy[Rule]:
    patterns = st.sampled_from(("*", "embed", "body.*", "*.conv", "*e*d", "side.news", "nothing"))
    return st.builds(
        Rule,
        classes=st.lists(st.sampled_from(("*", *CLASSES)), min_size=1, max_size=2).map(tuple),
        layers=st.none() | st.lists(patterns, min_size=1, max_size=2).map(tuple),
        depth=st.none() | intervals(),
        progress=st.none() | intervals(),
        condition=st.none() | st.sampled_from(CONDITIONS),
        weight=st.sampled_from((0.0, 0.25, 1.0)),
    )


def regions() -> st.SearchStrategy[tuple[SealedRegion, ...]]:
    adapters = SealedRegion(name="customer", branch="personal/customer", layers=("body.*", "*fc"), rank=4)
    module = SealedRegion(name="news", branch="open/mit", module="side.news")
    return st.sampled_from([(), (adapters,), (module,), (adapters, module)])


def routings() -> st.SearchStrategy[Routing]:
    """Policies of up to six rules, with and without sealed regions."""
    return st.builds(lambda rules, sealed: routing(*rules, sealed=sealed), st.lists(rules(), max_size=6), regions())


def all_layers() -> tuple[Layer, ...]:
    """The usual layers, and adapters that exist in some policies and not in others."""
    return (*LAYERS, Layer("body.0@customer", 0.2), Layer("head@customer", 1.0), Layer("side.news.fc@customer", 0.8))
