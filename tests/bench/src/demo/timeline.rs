//! What happens in the demo and when: places in the run, as shares of its length, so that a short run shows all of it.
//!
//! At 60 s: three times the load for 1.2 s from 9 s; Xid 79 at 24 s; another GPU throttles from 30 s to 40.8 s; the
//! control plane is killed at 45 s and back at 52.8 s. One thing at a time, so that each shows for itself.

use std::time::Duration;

use crate::arrivals::Surge;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Spike,
    SpikeEnds,
    Xid79,
    Throttle,
    ThrottleEnds,
    ControlPlaneKilled,
    ControlPlaneBack,
}

impl Event {
    pub const ALL: [Self; 7] = [
        Self::Spike,
        Self::SpikeEnds,
        Self::Xid79,
        Self::Throttle,
        Self::ThrottleEnds,
        Self::ControlPlaneKilled,
        Self::ControlPlaneBack,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Spike => "spike_x3",
            Self::SpikeEnds => "spike_ends",
            Self::Xid79 => "xid_79",
            Self::Throttle => "throttle",
            Self::ThrottleEnds => "throttle_ends",
            Self::ControlPlaneKilled => "control_plane_killed",
            Self::ControlPlaneBack => "control_plane_back",
        }
    }

    pub const fn said(self) -> &'static str {
        match self {
            Self::Spike => "three times the load",
            Self::SpikeEnds => "load back to normal",
            Self::Xid79 => "Xid 79: a GPU falls off the bus",
            Self::Throttle => "a GPU throttles to half speed",
            Self::ThrottleEnds => "it runs at full speed again",
            Self::ControlPlaneKilled => "control plane killed",
            Self::ControlPlaneBack => "control plane started again",
        }
    }

    const fn place(self) -> f64 {
        match self {
            Self::Spike => 0.15,
            Self::SpikeEnds => 0.17,
            Self::Xid79 => 0.40,
            Self::Throttle => 0.50,
            Self::ControlPlaneKilled => 0.75,
            Self::ThrottleEnds => 0.68,
            Self::ControlPlaneBack => 0.88,
        }
    }

    pub fn at(self, run: Duration) -> Duration {
        run.mul_f64(self.place())
    }
}

pub const SPIKE_FACTOR: f64 = 3.0;

pub fn spike(run: Duration) -> Surge {
    Surge {
        from_s: Event::Spike.at(run).as_secs_f64(),
        to_s: Event::SpikeEnds.at(run).as_secs_f64(),
        factor: SPIKE_FACTOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_in_order_at_their_share_of_the_run() {
        let minute = Event::ALL.map(|event| event.at(Duration::from_secs(60)).as_millis());
        assert_eq!(minute, [9_000, 10_200, 24_000, 30_000, 40_800, 45_000, 52_800]);
        let short = Event::ALL.map(|event| event.at(Duration::from_secs(10)).as_millis());
        assert_eq!(short, [1_500, 1_700, 4_000, 5_000, 6_800, 7_500, 8_800]);
    }
}
