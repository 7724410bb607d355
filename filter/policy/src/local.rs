//! What this Envoy itself knows: requests in flight, totals, and how both changed since a report.
//!
//! Every worker counts alone and shares its counts as plain data ([`WorkerCounts`]); the others add
//! them to their own. Counts are cumulative, so a lost copy costs nothing. A report says how many
//! requests an endpoint had at its sample time; what this Envoy started and ended since then is the
//! difference of its own in-flight counts, so a short history of those is all that is kept: one mark
//! per tick in which the number changed.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

use crate::{
    outcome::Outcome,
    units::{Span, Time},
};

/// Counts of a worker that is silent for longer are dropped.
pub const PEER_AGE_MAX: Span = Span::secs(2);
/// History reaches back a second more than counts of a report are believed.
const HISTORY: Span = Span::secs(6);
/// Marks of one endpoint: 6 s at the fastest tick of 50 ms.
const MARKS_MAX: usize = 120;

/// Cumulative counts of one endpoint in one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub started: u64,
    pub ended_ok: u64,
    pub ended_busy: u64,
    pub ended_broken: u64,
    pub ended_cancelled: u64,
    /// Sum of times to the first byte of the body, over `ttft_count` answers.
    pub ttft_ms_sum: u64,
    pub ttft_count: u64,
}

impl Totals {
    pub(crate) const fn ended(&mut self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Ok => &mut self.ended_ok,
            Outcome::Busy => &mut self.ended_busy,
            Outcome::Broken => &mut self.ended_broken,
            Outcome::Cancelled => &mut self.ended_cancelled,
        };
        *counter = counter.saturating_add(1);
    }

    fn each(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            started: f(self.started, other.started),
            ended_ok: f(self.ended_ok, other.ended_ok),
            ended_busy: f(self.ended_busy, other.ended_busy),
            ended_broken: f(self.ended_broken, other.ended_broken),
            ended_cancelled: f(self.ended_cancelled, other.ended_cancelled),
            ttft_ms_sum: f(self.ttft_ms_sum, other.ttft_ms_sum),
            ttft_count: f(self.ttft_count, other.ttft_count),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// The counts of one worker, as it shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Drawn at start of the worker: a worker that starts again is another one.
    pub worker: u64,
    pub at: Time,
    pub services: Vec<ServiceCounts>,
}

/// The counts of one service in one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceCounts {
    pub service: Arc<str>,
    /// Requests that arrived, steered or not.
    pub arrivals: u64,
    /// In the order of their addresses; those without any count are left out.
    pub endpoints: Vec<EndpointCounts>,
}

/// The counts of one endpoint in one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCounts {
    pub address: Arc<str>,
    pub in_flight: u32,
    pub totals: Totals,
}

/// What this Envoy tells the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Time that the counts cover; zero in the first one, which carries in-flight numbers alone.
    pub window: Span,
    pub services: Vec<ServiceFeedback>,
    /// The worst rung of all services.
    pub rung: crate::ladder::Rung,
}

/// One service in the feedback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFeedback {
    pub service: Arc<str>,
    /// Requests that arrived in the window.
    pub arrivals: u64,
    pub endpoints: Vec<EndpointFeedback>,
}

/// One endpoint in the feedback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFeedback {
    pub address: Arc<str>,
    pub in_flight: u32,
    /// In the window.
    pub totals: Totals,
}

/// In-flight requests of one endpoint: this worker's, the other workers', and their recent history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    pub own: u32,
    pub peers: u32,
    pub totals: Totals,
    marks: VecDeque<(Time, u32)>,
}

impl Local {
    /// One more request at the endpoint.
    pub const fn start(&mut self) {
        self.own = self.own.saturating_add(1);
        self.totals.started = self.totals.started.saturating_add(1);
    }

    /// One request less; stays at zero when an end comes twice.
    pub const fn end(&mut self) {
        self.own = self.own.saturating_sub(1);
    }

    /// Requests of this Envoy at the endpoint.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.own.saturating_add(self.peers)
    }

    /// Remembers the number of this tick.
    pub fn mark(&mut self, now: Time) {
        let current = self.in_flight();
        if self.marks.back().map_or(0, |mark| mark.1) == current {
            return;
        }
        // After a clock that stepped back, older marks would lie in the future: start again.
        if self.marks.back().is_some_and(|mark| mark.0 > now) {
            self.marks.clear();
        }
        self.marks.push_back((now, current));
        let oldest = now.minus(HISTORY);
        // The newest mark before the horizon stays: it says what the number was there.
        while self.marks.len() > MARKS_MAX || self.marks.get(1).is_some_and(|mark| mark.0 <= oldest)
        {
            self.marks.pop_front();
        }
    }

    /// Requests of this Envoy at the endpoint at time `at`, to a tick.
    #[must_use]
    pub fn in_flight_at(&self, at: Time) -> u32 {
        self.marks.iter().rev().find(|mark| mark.0 <= at).map_or(0, |mark| mark.1)
    }

    /// Whether nothing is known that would be lost with the endpoint.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.own == 0 && self.peers == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(ms: u64) -> Time {
        Time::ms(ms)
    }

    #[test]
    fn counts_saturate_at_both_ends() {
        let mut local = Local::default();
        local.end();
        assert_eq!(local.in_flight(), 0);
        local.own = u32::MAX;
        local.peers = 1;
        local.start();
        assert_eq!(local.in_flight(), u32::MAX);
    }

    #[test]
    fn history_answers_for_any_time() {
        let mut local = Local::default();
        local.start();
        local.mark(t(100));
        local.start();
        local.start();
        local.mark(t(200));
        local.mark(t(250));
        local.end();
        local.mark(t(300));
        for (at, expected) in
            [(0, 0), (99, 0), (100, 1), (199, 1), (200, 3), (299, 3), (300, 2), (u64::MAX, 2)]
        {
            assert_eq!(local.in_flight_at(t(at)), expected, "{at}");
        }
    }

    #[test]
    fn history_keeps_what_was_true_at_its_horizon() {
        let mut local = Local::default();
        local.start();
        local.mark(t(1_000));
        local.start();
        local.mark(t(20_000));
        local.start();
        local.mark(t(26_000));
        // The horizon is 20 s: the mark at 1 s is not needed any more, that at 20 s is.
        assert_eq!(local.in_flight_at(t(19_999)), 0);
        assert_eq!(local.in_flight_at(t(20_000)), 2);
    }

    #[test]
    fn history_is_bounded() {
        let mut local = Local::default();
        for i in 0..1_000 {
            local.start();
            local.mark(t(i));
        }
        assert_eq!(local.marks.len(), MARKS_MAX);
        assert_eq!(local.in_flight_at(t(999)), 1_000);
    }

    #[test]
    fn a_clock_that_steps_back_starts_the_history_again() {
        let mut local = Local::default();
        local.start();
        local.mark(t(5_000));
        local.start();
        local.mark(t(100));
        assert_eq!(local.in_flight_at(t(100)), 2);
    }

    #[test]
    fn totals_differ_by_field_and_never_below_zero() {
        let mut a = Totals { started: 5, ttft_ms_sum: 70, ..Totals::default() };
        let b = Totals { started: 3, ended_ok: 9, ttft_ms_sum: 20, ..Totals::default() };
        let expected = Totals { started: 2, ttft_ms_sum: 50, ..Totals::default() };
        assert_eq!(a.since(b), expected);
        assert_eq!(a.plus(b).ended_ok, 9);
        for outcome in Outcome::ALL {
            a.ended(outcome);
        }
        assert_eq!((a.ended_ok, a.ended_busy, a.ended_broken, a.ended_cancelled), (1, 1, 1, 1));
    }
}
