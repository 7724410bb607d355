//! One step: what is known now becomes what every proxy shall know.
use tidegate_policy::units::Time;

use crate::{input::Inputs, settings::Settings, snapshot::FleetSnapshot};

/// Turns inputs into fleet snapshots; remembers what smoothing and latched verdicts need.
#[derive(Debug, Clone, Default)]
pub struct Weigher {
    settings: Settings,
}

impl Weigher {
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Replaces the settings; what was learned stays.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// An operator vouches for a GPU: its latched verdicts end.
    pub fn acknowledge(&mut self, _node: &str, _gpu_uuid: &str) {}

    /// The fleet as of `now`. Run it each period, and at once after an event.
    pub fn step(&mut self, _now: Time, _inputs: &Inputs) -> FleetSnapshot {
        FleetSnapshot::default()
    }
}
