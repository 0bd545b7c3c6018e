"""Models that carry their record: attestations, observations, and the gate in front of deployment. No torch."""
