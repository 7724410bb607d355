//! Any bytes as messages of the control plane: decode, merge, decide. A refused message changes
//! nothing, a steered request goes to an endpoint that is in the state and not down.
#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use tidegate_policy::{
    chance::Chance,
    classify::RequestFacts,
    config::{self, Config},
    decision::Decision,
    gate::{Gate, ServedFacts},
    outcome::{Flags, Seen},
    snapshot::{ENDPOINTS_MAX, Extent, Fleet, Hard, SERVICES_MAX},
    units::Time,
};

#[path = "../../../filter/src/wire.rs"]
#[allow(dead_code, unreachable_pub, reason = "the filter uses all of it, a target only some")]
mod wire;

/// Messages of one input; more only cost time.
const MESSAGES_MAX: usize = 12;

const CONFIG: &str = r#"{"version": 1, "services": [
    {"name": "llm", "match": {"clusters": ["llm"]}, "policy": "POLICY"}]}"#;

fn configuration(policy: u8) -> Config {
    let policies = config::Policy::ALL;
    let policy = policies[usize::from(policy) % policies.len()].as_str();
    let value = serde_json::from_str(&CONFIG.replace("POLICY", policy)).expect("JSON");
    config::parse(&value).expect("a good configuration")
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let mut gate = Gate::new(Time::ms(0), 1, Rc::new(configuration(first)));
    let mut chance = Chance::seeded(u64::from(first));
    let mut fleet = Fleet::new();
    let mut now = Time::ms(0);
    // Messages are parted by a byte that starts none.
    for message in rest.splitn(MESSAGES_MAX, |b| *b == 0xff) {
        now = Time::ms(now.as_ms().wrapping_mul(31).wrapping_add(message.len() as u64));
        let Ok(update) = wire::update(message) else { continue };
        for full in [false, true] {
            let mut update = update.clone();
            if full {
                update.extent = Extent::Full;
            }
            let before = fleet.clone();
            if fleet.apply(now, update).is_err() {
                assert_eq!(fleet, before);
            }
        }
        assert!(fleet.services().count() <= SERVICES_MAX);
        assert!(fleet.services().all(|(_, s)| s.len() <= ENDPOINTS_MAX));
        if let Some(export) = fleet.export(now) {
            let shared =
                wire::update(&wire::update_bytes(export)).expect("what is written is read");
            assert_eq!(Fleet::new().apply(now, shared), Ok(()));
        }
        gate.on_snapshot(now, &fleet);
        gate.on_tick(now);
        decide(&mut gate, &fleet, now, &mut chance);
    }
});

fn decide(gate: &mut Gate, fleet: &Fleet, now: Time, chance: &mut Chance) {
    let facts = RequestFacts { cluster: Some(b"llm"), ..RequestFacts::default() };
    match gate.on_request(now, chance, &facts) {
        Decision::Steer { ticket, list, .. } => {
            let service = fleet.service("llm").expect("steered by a snapshot");
            assert!(list.split(',').count() <= service.len().min(4));
            for address in list.split(',') {
                let endpoint = service.endpoint(address).expect("a member");
                assert_ne!(endpoint.hard, Hard::Down);
            }
            let served = ServedFacts { served: list.split(',').next_back(), attempts: 2 };
            gate.on_response_headers(now, &ticket, &served);
            let seen = Seen { flags: Flags(chance.bits()), ..Seen::default() };
            let _ = gate.on_end(now, ticket, &served, &seen);
        }
        Decision::Pass { .. } | Decision::Answer { .. } => {}
    }
    assert_eq!(gate.open_requests(), 0);
    let _ = gate.feedback(now);
}
