//! A proxy around the gate that ships: its clock, its ticks, and the updates that reach it.
//!
//! A thousand proxies that tick twenty times a second and take five updates a second are a hundred times more
//! work than their requests. So a proxy is brought up to date only when a request of its own begins or ends,
//! with the calls that make a difference, at their times: the first tick after its last event, which keeps its
//! count for the history, the newest update that reached it, and the tick before now, which lets averages fall.
//! Ticks in between would see no change and only multiply the same decay.

use std::rc::Rc;

use tidegate_policy::{
    chance::Chance,
    classify::RequestFacts,
    config::{Config, ControlPlane, ExistingList, Matcher, Mode, Policy, ServiceConfig},
    decision::{Decision, Ticket},
    gate::{Gate, ServedFacts},
    outcome::{Ending, Outcome, Seen},
    snapshot::Fleet,
    units::{Span, Time},
};

use crate::plane::SERVICE;

/// Time between ticks in the filter.
const TICK_MS: u64 = 50;

/// An update as it arrived at the proxies.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub number: u64,
    pub at: Time,
    pub fleet: Rc<Fleet>,
}

/// What the gate decided.
#[derive(Debug)]
pub enum Steering {
    /// The list as it stands in the header.
    To {
        ticket: Ticket,
        list: String,
        reason: &'static str,
    },
    Left,
    Answered,
}

/// The filter's configuration in a run.
#[must_use]
pub fn config(policy: Policy, retries: u8) -> Rc<Config> {
    let matcher = Matcher { clusters: vec![SERVICE.into()], ..Matcher::default() };
    Rc::new(Config {
        version: 1,
        mode: Mode::Enforce,
        control_plane: ControlPlane { cluster: "plane".into(), authority: "plane".into() },
        services: vec![ServiceConfig {
            name: SERVICE.into(),
            matcher,
            policy,
            retries,
            slow_start: Span::secs(60),
            existing_list: ExistingList::Replace,
            mode: Mode::Enforce,
        }],
    })
}

/// One proxy.
#[derive(Debug)]
pub struct Sidecar {
    gate: Gate,
    chance: Chance,
    /// Ticks stand at this remainder, so that the proxies do not tick as one.
    phase_ms: u64,
    advanced: Time,
    update: u64,
}

impl Sidecar {
    #[must_use]
    pub fn new(now: Time, config: Rc<Config>, mut chance: Chance) -> Self {
        let gate = Gate::new(now, chance.bits(), config);
        let phase_ms = chance.below(TICK_MS);
        Self { gate, chance, phase_ms, advanced: now, update: 0 }
    }

    /// Brings the gate to `now`, with the newest update that reached it.
    pub fn catch_up(&mut self, now: Time, newest: Option<&Arrived>) {
        if let Some(newest) = newest.filter(|newest| newest.number > self.update) {
            self.advance(newest.at);
            self.gate.on_snapshot(newest.at, &newest.fleet);
            self.update = newest.number;
        }
        self.advance(now);
    }

    fn advance(&mut self, now: Time) {
        if now <= self.advanced {
            return;
        }
        let last = self.last_tick(now);
        let first = self.last_tick(self.advanced) + TICK_MS;
        if first <= last {
            self.gate.on_tick(Time::ms(first));
        }
        if first < last {
            self.gate.on_tick(Time::ms(last));
        }
        self.advanced = now;
    }

    const fn last_tick(&self, now: Time) -> u64 {
        let passed_ms = now.as_ms().saturating_sub(self.phase_ms);
        passed_ms - passed_ms % TICK_MS + self.phase_ms
    }

    pub fn steer(&mut self, now: Time) -> Steering {
        let facts = RequestFacts { cluster: Some(SERVICE.as_bytes()), ..RequestFacts::default() };
        match self.gate.on_request(now, &mut self.chance, &facts) {
            Decision::Steer { ticket, list, reason, .. } => {
                Steering::To { ticket, list, reason: reason.as_str() }
            }
            Decision::Pass { .. } => Steering::Left,
            Decision::Answer { .. } => Steering::Answered,
        }
    }

    /// The request is over.
    pub fn end(
        &mut self,
        now: Time,
        ticket: Ticket,
        served: &ServedFacts<'_>,
        status: u16,
    ) -> Outcome {
        let seen = Seen { status: Some(status), ending: Ending::Complete, ..Seen::default() };
        self.gate.on_response_headers(now, &ticket, served);
        self.gate.on_end(now, ticket, served, &seen)
    }

    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.gate.open_requests()
    }
}
