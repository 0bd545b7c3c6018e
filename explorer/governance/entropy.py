"""Entropy profile: how many directions each layer uses for each class, and how far the classes differ in it.

Taken on a committed probe set at moments spread evenly over the run, the untrained model first: the separation of
classes before anything was learned is the baseline for later profiles. `explorer.governance.separation` has the
spectra, chi, which compares the directions that the classes use, and the linear probe, which shows the classes that can
be told apart; `explorer.governance.probes` has the examples. Spectra are recorded of the rows as they are and of the
rows less their mean. The method observes: a run with it has the same weights.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.streams import stream
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.entries.entropy_profile import Doubles, LayerProfiles, joint_row
from explorer.governance.probes import Probes, choose_probes, layer_outputs, layers_seen, moments, of_one_width
from explorer.governance.separation import centred, probe, project, separation, spectrum
from explorer.governance.shared_state import Session


def take_profile(state: State, probes: Probes, *, step: int, permutations: int) -> LayerProfiles:
    """Return the profile of the model as it is, without classes whose examples are absent. At least one class has
    examples."""
    session = state.resource(Session)
    present = [path for path in session.classes if path not in session.absent]
    outputs = {path: layer_outputs(state, probes, path) for path in present}
    counts = [len(probes.examples[path]) for path in present]
    labels = np.repeat(np.arange(len(present)), counts)
    spectra, joint = [], []
    # The classes are compared over one matrix of rows a layer, in the order of the session's classes.
    for leaf in layers_seen(state):
        rows = of_one_width([outputs[path][leaf.name] for path in present])
        spectra.append([(*spectrum(mine), *spectrum(centred(mine))) for mine in rows])
        joint.append(_joint(torch.cat(rows), labels, state.seed, leaf.name, step, permutations))
    return LayerProfiles(
        step=step,
        probes=probes.root,
        classes=tuple(session.classes.index(path) for path in present),
        examples=tuple(counts),
        spectra=np.array(spectra, np.float64).transpose(1, 0, 2),
        joint=np.array(joint, np.float64),
    )


def _joint(rows_ND: Tensor, labels: np.ndarray, seed: int, layer: str, step: int, permutations: int) -> Doubles:
    """Return one layer's numbers over all classes."""
    # chi of a sample is biased upwards with dimensions, so it is taken on a projection. Its stream has no step in its
    # name: all profiles of a run use the same directions, and differ by the model only.
    few = project(rows_ND, stream(seed, "projection", layer))
    draws = stream(seed, "permutations", layer, step)
    apart = separation(few, labels, permutations=permutations, draws=draws)
    told = probe(rows_ND, labels, permutations=permutations, draws=stream(seed, "linear probe", layer, step))
    return joint_row((*spectrum(rows_ND), *apart), spectrum(centred(rows_ND)), told.p_value, told.counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entropy(Method):
    """Record an entropy profile now and then."""

    name: ClassVar[str] = "entropy"
    kind: ClassVar[Kind] = Kind.RECORD
    summary: ClassVar[str] = "Records which provenance classes each layer tells apart, and how many directions it uses."
    source: ClassVar[str] = (
        "Giraldo et al. 2014, arXiv:1211.2459; Skean et al. 2025, arXiv:2502.02013; Alain and Bengio 2016,"
        " arXiv:1610.01644"
    )
    formula: ClassVar[str] = (
        "of the outputs Z of a layer for N probes: S = -tr(K log K), K = Z Z^T / tr(Z Z^T), effective rank exp S;"
        " chi = S(all) - sum of q_c S(class c); balanced accuracy of a linear probe, cross-validated; p-values of both"
        " among `permutations` of the classes"
    )
    changes: ClassVar[str] = "nothing"
    needs: ClassVar[str] = "tagged examples; layers with finite outputs"
    routing: ClassVar[str] = "Works: it observes; a sealed region takes part only for the probes of its own classes."

    probes: Annotated[
        int, Field(ge=2, le=4096, description="training examples of each class to measure"), Unit("examples of a class")
    ] = 64
    profiles: Annotated[
        int, Field(ge=1, le=1000, description="how many, the untrained model and the end included"), Unit("profiles")
    ] = 8
    permutations: Annotated[
        int, Field(ge=1, le=10_000, description="of the classes, for the null distribution"), Unit("permutations")
    ] = 99

    def phase(self, moment: Moment) -> str:
        now = moment.step == 0 or moment.step + 1 in moments(moment.total_steps, count=self.profiles)
        return "entropy profile" if now else "no profile"

    def before_step(self, state: State) -> None:
        if state.step == 0:
            self._record(state, step=0)

    def after_update(self, state: State) -> None:
        done = state.step + 1
        if done in moments(state.total_steps, count=self.profiles):
            self._record(state, step=done)

    def _record(self, state: State, *, step: int) -> None:
        session = state.resource(Session)
        if session.absent.issuperset(session.classes):
            return
        probes = choose_probes(state, count=self.probes)
        session.notes.profiles.append(take_profile(state, probes, step=step, permutations=self.permutations))
