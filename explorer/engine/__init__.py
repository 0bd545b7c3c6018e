"""The training loop: state, methods' interface and order, schedules, timing, checkpoints. It knows no single method."""
