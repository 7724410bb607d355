//! What the proxies and the model servers counted: success, arrivals, in flight, slots, service time.
//!
//! ```text
//! success   s ← s + 0.1·(outcome − s) per counted outcome, start 1, at least 0.1; +0.02/s without any,
//!           taken back by the first failure
//! arrivals  the larger of two EWMAs, 5 s and 1 s, of the proxies' sum
//! in flight running + waiting of the model server, else the sum of the proxies
//! slots     the server's own figure, capped by what ran while requests waited (EWMA 60 s)
//! service   in flight / arrivals (Little's law), both smoothed alike
//! ```
//! Arrivals follow a rise within a second and a fall within five: taken too low, every proxy sends the rise
//! to the same few endpoints before the next report; taken too high, picks are a little flatter.
//!
//! The success average is symmetric: one that falls faster than it rises looks safer, but under a
//! harmless 1 % of random errors it raises median latency by half. Busy answers and cancels are
//! nobody's failure and are not counted.
use tidegate_policy::units::{BasisPoints, Span, Time};

use crate::{
    input::{EndpointFeedback, Engine},
    numbers::{bounded, ewma},
};

const STEP: f64 = 0.1;
const SUCCESS_MIN: f64 = 0.1;
const RECOVERY_PER_S: f64 = 0.02;
const ARRIVALS_TAU: Span = Span::secs(5);
const RISE_TAU: Span = Span::secs(1);
const SLOTS_TAU: Span = Span::secs(60);
const SERVICE_TAU: Span = Span::secs(5);
/// Below this Little's law divides noise by nothing.
const ARRIVALS_MIN: f64 = 0.05;
const SERVICE_MAX_MS: f64 = 3_600_000.0;

/// Fleet-wide success rate of one endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Success {
    /// After the last outcome.
    rate: f64,
    /// What silence has added since: a guess, until a success confirms it.
    healed: f64,
    ok_total: u64,
    broken_total: u64,
    is_known: bool,
}

impl Default for Success {
    fn default() -> Self {
        Self { rate: 1.0, healed: 0.0, ok_total: 0, broken_total: 0, is_known: false }
    }
}

impl Success {
    /// Takes in totals; gives how many succeeded since the last time.
    pub(crate) fn observe(&mut self, feedback: Option<&EndpointFeedback>, dt: Span) -> u64 {
        let (mut ok, mut broken) = (0, 0);
        if let Some(feedback) = feedback {
            ok = feedback.ok_total.saturating_sub(self.ok_total);
            broken = feedback.broken_total.saturating_sub(self.broken_total);
            self.ok_total = feedback.ok_total;
            self.broken_total = feedback.broken_total;
        }
        let counted = ok as f64 + broken as f64;
        if counted <= 0.0 {
            let healed = self.healed + RECOVERY_PER_S * dt.as_secs_f64();
            self.healed = bounded(healed, 0.0, 1.0 - self.rate);
            return ok;
        }
        self.is_known = true;
        if broken == 0 {
            self.rate += self.healed;
        }
        self.healed = 0.0;
        // The order within a batch is unknown: each of its outcomes counts as the batch's mean.
        let mean = ok as f64 / counted;
        let keep = libm::pow(1.0 - STEP, counted);
        self.rate = bounded(mean + (self.rate - mean) * keep, SUCCESS_MIN, 1.0);
        ok
    }

    pub(crate) fn rate(self) -> Option<BasisPoints> {
        self.is_known
            .then(|| BasisPoints::clamped(libm::round((self.rate + self.healed) * 10_000.0) as u32))
    }
}

/// Requests a second of one service.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Arrivals {
    total: Option<(u64, Time)>,
    rate: Option<f64>,
    quick: f64,
}

impl Arrivals {
    pub(crate) fn observe(&mut self, now: Time, total: Option<u64>) -> Option<f64> {
        let Some(total) = total else {
            *self = Self::default();
            return None;
        };
        let Some((before, at)) = self.total else {
            self.total = Some((total, now));
            return self.expected();
        };
        let dt = now.since(at);
        if dt == Span::ZERO {
            return self.expected();
        }
        self.total = Some((total, now));
        let current = total.saturating_sub(before) as f64 / dt.as_secs_f64();
        self.quick = self.rate.map_or(current, |_| ewma(self.quick, current, dt, RISE_TAU));
        self.rate = Some(self.rate.map_or(current, |r| ewma(r, current, dt, ARRIVALS_TAU)));
        self.expected()
    }

    /// What to reckon with until the next step.
    fn expected(self) -> Option<f64> {
        self.rate.map(|rate| rate.max(self.quick))
    }

    /// The mean of the last while, for what is divided by it.
    pub(crate) const fn mean(self) -> Option<f64> {
        self.rate
    }
}

/// Requests at an endpoint: the model server knows best, the proxies know their own.
pub(crate) fn in_flight(
    engine: Option<Engine>,
    feedback: Option<&EndpointFeedback>,
) -> Option<u32> {
    let of_engine = engine
        .and_then(|e| e.running.map(|running| running.saturating_add(e.waiting.unwrap_or(0))));
    of_engine.or_else(|| feedback.and_then(|f| f.in_flight))
}

/// How many requests run together at one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Slots {
    /// Running while others waited.
    observed: Option<f64>,
}

impl Slots {
    pub(crate) fn observe(&mut self, engine: Option<Engine>, dt: Span) -> Option<u32> {
        let engine = engine?;
        let stated = engine.slots.filter(|s| *s > 0);
        if let Some(running) = engine.running.filter(|r| *r > 0).map(f64::from) {
            if engine.waiting.is_some_and(|w| w > 0) {
                let start = self.observed.or_else(|| stated.map(f64::from)).unwrap_or(running);
                self.observed = Some(ewma(start, running, dt, SLOTS_TAU));
            }
            // More ran than we thought possible: that is proof.
            self.observed = self.observed.map(|o| o.max(running));
        }
        let observed = self.observed.map(|o| libm::round(bounded(o, 1.0, 65_535.0)) as u32);
        match (stated, observed) {
            (Some(stated), Some(observed)) => Some(stated.min(observed)),
            (stated, observed) => stated.or(observed),
        }
    }
}

/// Mean time that a request spends at an endpoint of one service.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ServiceTime {
    in_flight: Option<f64>,
}

impl ServiceTime {
    pub(crate) fn observe(
        &mut self,
        in_flight: Option<u64>,
        arrivals: Option<f64>,
        dt: Span,
    ) -> Option<Span> {
        let Some(current) = in_flight.map(|n| n as f64) else {
            self.in_flight = None;
            return None;
        };
        let mean = self.in_flight.map_or(current, |n| ewma(n, current, dt, SERVICE_TAU));
        self.in_flight = Some(mean);
        let rate = arrivals.filter(|r| *r >= ARRIVALS_MIN)?;
        let ms = libm::round(mean / rate * 1_000.0);
        (ms >= 1.0).then(|| Span::ms(bounded(ms, 1.0, SERVICE_MAX_MS) as u64))
    }
}

#[cfg(test)]
mod tests;
