//! A gate with services `llm` (two to many endpoints) and a clock that the tests move.

use alloc::{format, string::String, vec, vec::Vec};

use super::*;
use crate::{
    outcome::{Ending, Flags, Outcome, Seen},
    snapshot::{EndpointUpdate, Extent, Hard, ServiceUpdate, Update},
    units::{BasisPoints, PerMille, Weight},
};

mod ends;
mod health;
mod peers;
mod requests;

const A: &str = "10.0.0.1:80";
const B: &str = "10.0.0.2:80";
const C: &str = "10.0.0.3:80";

fn t(ms: u64) -> Time {
    Time::ms(ms)
}

fn up(address: &str) -> EndpointUpdate {
    EndpointUpdate {
        address: address.into(),
        weight: Weight::clamped(100),
        in_flight: Some(0),
        slots: Some(8),
        gate: PerMille::FULL,
        success: None,
        age: Some(Span::ms(100)),
        hard: Hard::Up,
        node: String::new(),
        gpu_type: "a100".into(),
        type_weight: Weight::clamped(100),
        memory_free: None,
        healthy_for: None,
    }
}

fn hard(address: &str, hard: Hard) -> EndpointUpdate {
    EndpointUpdate { hard, ..up(address) }
}

/// A gate, its fleet and its chance.
struct Rig {
    gate: Gate,
    fleet: Fleet,
    chance: Chance,
    epoch: u64,
}

impl Rig {
    fn new(service: &str) -> Self {
        let json = format!(
            r#"{{"version": 1, "services": [
                {{"name": "llm", "match": {{"clusters": ["llm"]}}{service}}}]}}"#
        );
        Self::with_config(&json)
    }

    fn with_config(json: &str) -> Self {
        Self {
            gate: Gate::new(t(0), 1, Rc::new(config(json))),
            fleet: Fleet::new(),
            chance: Chance::seeded(7),
            epoch: 0,
        }
    }

    /// A rig whose service has these endpoints at 10 s.
    fn knowing(service: &str, endpoints: Vec<EndpointUpdate>) -> Self {
        let mut rig = Self::new(service);
        rig.hear(t(10_000), endpoints);
        rig
    }

    fn hear(&mut self, now: Time, endpoints: Vec<EndpointUpdate>) {
        self.hear_of("llm", now, endpoints);
    }

    fn hear_of(&mut self, name: &str, now: Time, endpoints: Vec<EndpointUpdate>) {
        self.apply(name, now, endpoints, Extent::Full);
    }

    fn hear_changes(&mut self, now: Time, endpoints: Vec<EndpointUpdate>) {
        self.apply("llm", now, endpoints, Extent::Changes);
    }

    fn apply(&mut self, name: &str, now: Time, endpoints: Vec<EndpointUpdate>, extent: Extent) {
        self.epoch += 1;
        let service = ServiceUpdate {
            name: name.into(),
            arrival_rate: Some(1.0),
            endpoints,
            endpoints_removed: vec![],
            mean_service: Some(Span::secs(2)),
        };
        let update = Update {
            epoch: self.epoch,
            instance: 1,
            period: Span::ms(500),
            proxies_live: 1,
            extent,
            services: vec![service],
            services_removed: vec![],
        };
        self.fleet.apply(now, update).unwrap();
        self.gate.on_snapshot(now, &self.fleet);
    }

    fn ask(&mut self, now: Time) -> Decision {
        let facts = RequestFacts { cluster: Some(b"llm"), ..RequestFacts::default() };
        self.gate.on_request(now, &mut self.chance, &facts)
    }

    fn steer(&mut self, now: Time) -> (Ticket, Vec<String>, PickReason) {
        match self.ask(now) {
            Decision::Steer { ticket, list, reason, .. } => {
                (ticket, list.split(',').map(String::from).collect(), reason)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Share of first choices per endpoint over `n` requests that end at once without a verdict.
    fn shares(&mut self, now: Time, n: u32, of: &[&str]) -> Vec<f64> {
        let mut counts = vec![0_u32; of.len()];
        for _ in 0..n {
            let (ticket, list, _) = self.steer(now);
            if let Some(at) = of.iter().position(|a| *a == list[0]) {
                counts[at] += 1;
            }
            self.end(now, ticket, &list[0], 429);
        }
        counts.iter().map(|c| f64::from(*c) / f64::from(n)).collect()
    }

    fn end(&mut self, now: Time, ticket: Ticket, served: &str, status: u16) -> Outcome {
        let served = ServedFacts { served: Some(served), attempts: 1 };
        self.gate.on_end(now, ticket, &served, &answered(status))
    }

    fn in_flight(&self, address: &str) -> u32 {
        self.gate.totals("llm", address).map_or(0, |found| found.0)
    }

    fn totals(&self, address: &str) -> Totals {
        self.gate.totals("llm", address).map(|found| found.1).unwrap_or_default()
    }
}

fn config(json: &str) -> Config {
    crate::config::parse(&serde_json::from_str(json).unwrap()).unwrap()
}

fn answered(status: u16) -> Seen {
    Seen { status: Some(status), ending: Ending::Complete, ..Seen::default() }
}
