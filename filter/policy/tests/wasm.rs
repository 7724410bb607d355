//! The policy where it runs: these tests run natively and, compiled to wasm, under Node.
//!
//! Wasm has 32-bit addresses, other float code and another allocator than the host; each test covers
//! arithmetic or data structures that could differ.

use std::{rc::Rc, sync::Arc};

use tidegate_policy::{
    address,
    chance::Chance,
    classify::RequestFacts,
    config::{self, Policy},
    decision::{Decision, PassReason, PickReason, Ticket},
    gate::{Gate, ServedFacts},
    ladder::Rung,
    outcome::{Ending, Outcome, Seen},
    pick::{Demand, Method, Picker, Rate, Reported, Row, Slots, Table},
    snapshot::{EndpointUpdate, Extent, Fleet, Hard, ServiceUpdate, Update, UpdateRefused},
    success::{Success, Verdict, factor},
    units::{PerMille, Span, Time, Weight},
};
#[cfg(target_family = "wasm")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn t(ms: u64) -> Time {
    Time::ms(ms)
}

fn endpoint(address: &str, in_flight: u32) -> EndpointUpdate {
    EndpointUpdate {
        address: address.into(),
        weight: Weight::clamped(100),
        in_flight: Some(in_flight),
        slots: Some(8),
        gate: PerMille::FULL,
        success: None,
        age: Some(Span::ms(50)),
        hard: Hard::Up,
        node: String::new(),
        gpu_type: String::new(),
        type_weight: Weight::clamped(100),
        memory_free: None,
        healthy_for: None,
    }
}

fn update(epoch: u64, endpoints: Vec<EndpointUpdate>) -> Update {
    Update {
        epoch,
        instance: u64::MAX,
        period: Span::ms(500),
        proxies_live: 1,
        extent: Extent::Full,
        services: vec![ServiceUpdate {
            name: "llm".into(),
            arrival_rate: Some(10.0),
            endpoints,
            endpoints_removed: vec![],
            mean_service: Some(Span::secs(2)),
        }],
        services_removed: vec![],
    }
}

fn gate(policy: Policy, endpoints: Vec<EndpointUpdate>) -> Gate {
    let json = format!(
        r#"{{"version": 1, "services": [
            {{"name": "llm", "match": {{"clusters": ["llm"]}}, "policy": "{}"}}]}}"#,
        policy.as_str()
    );
    let config = config::parse(&serde_json::from_str(&json).unwrap()).unwrap();
    let mut fleet = Fleet::new();
    fleet.apply(t(1_000), update(1, endpoints)).unwrap();
    let mut gate = Gate::new(t(0), u64::MAX, Rc::new(config));
    gate.on_snapshot(t(1_000), &fleet);
    gate
}

fn steer(gate: &mut Gate, now: Time, chance: &mut Chance) -> (Ticket, String, PickReason) {
    let facts = RequestFacts { cluster: Some(b"outbound|80||llm"), ..RequestFacts::default() };
    match gate.on_request(now, chance, &facts) {
        Decision::Steer { ticket, list, reason, .. } => (ticket, list, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn chance_gives_the_same_bits_everywhere() {
    let mut chance = Chance::seeded(1_234_567);
    assert_eq!(chance.bits(), 6_457_827_717_110_365_317);
    assert!(chance.below(u64::MAX) < u64::MAX);
    assert!((0.0..1.0).contains(&chance.unit()));
}

#[test]
fn time_beyond_32_bits_saturates() {
    assert_eq!(t(u64::MAX).plus(Span::ms(1)), t(u64::MAX));
    assert_eq!(t(1 << 40).since(t(1)), Span::ms((1 << 40) - 1));
    assert_eq!(t(1).since(t(1 << 40)), Span::ZERO);
}

#[test]
fn a_request_goes_to_the_emptier_endpoint() {
    let mut gate =
        gate(Policy::LiSlots, vec![endpoint("10.0.0.1:80", 7), endpoint("10.0.0.2:80", 0)]);
    let (_, list, reason) = steer(&mut gate, t(1_000), &mut Chance::seeded(1));
    assert_eq!((list.as_str(), reason), ("10.0.0.2:80,10.0.0.1:80", PickReason::LiSlots));
}

#[test]
fn every_policy_picks_members_only() {
    for policy in Policy::ALL {
        let endpoints = (1..=100).map(|i| endpoint(&format!("10.0.0.{i}:80"), i)).collect();
        let (mut gate, mut chance) = (gate(policy, endpoints), Chance::seeded(2));
        for _ in 0..100 {
            let (_, list, _) = steer(&mut gate, t(1_000), &mut chance);
            let list = address::parse_list(list.as_bytes()).unwrap();
            assert_eq!(list.len(), 4);
            assert!(list.iter().all(|a| a.starts_with("10.0.0.")));
        }
    }
}

#[test]
fn a_retry_is_charged_to_both_endpoints() {
    let mut gate =
        gate(Policy::LiSlots, vec![endpoint("10.0.0.1:80", 7), endpoint("10.0.0.2:80", 0)]);
    let (ticket, ..) = steer(&mut gate, t(1_000), &mut Chance::seeded(1));
    let served = ServedFacts { served: Some("10.0.0.1:80"), attempts: 2 };
    let seen = Seen { status: Some(200), ending: Ending::Complete, ..Seen::default() };
    assert_eq!(gate.on_end(t(1_500), ticket, &served, &seen), Outcome::Ok);
    assert_eq!(gate.totals("llm", "10.0.0.2:80").unwrap().1.ended_broken, 1);
    assert_eq!(gate.totals("llm", "10.0.0.1:80").unwrap().1.ended_ok, 1);
}

#[test]
fn all_down_is_answered() {
    let down = EndpointUpdate { hard: Hard::Down, ..endpoint("10.0.0.1:80", 0) };
    let mut gate = gate(Policy::LiSlots, vec![down]);
    let facts = RequestFacts { cluster: Some(b"llm"), ..RequestFacts::default() };
    let decision = gate.on_request(t(1_000), &mut Chance::seeded(1), &facts);
    assert!(matches!(decision, Decision::Answer { status: 503, .. }), "{decision:?}");
}

#[test]
fn without_a_service_a_request_passes() {
    let mut gate = gate(Policy::LiSlots, vec![endpoint("10.0.0.1:80", 0)]);
    let decision = gate.on_request(t(1_000), &mut Chance::seeded(1), &RequestFacts::default());
    assert_eq!(decision, Decision::Pass { service: None, reason: PassReason::NoService });
}

#[test]
fn the_ladder_has_its_rungs() {
    let rung = |ms| Rung::at(Some(Span::ms(ms)), Span::ms(500));
    assert_eq!(
        [1_000, 1_001, 5_001, 30_001, 86_400_001].map(|ms| rung(ms).number()),
        [0, 1, 2, 3, 4]
    );
    assert_eq!(rung(u64::MAX), Rung::EqualWeights);
}

#[test]
fn picks_survive_extreme_numbers() {
    let extreme = [0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN, -1.0];
    let mut chance = Chance::seeded(3);
    let mut picker = Picker::new();
    for a in extreme {
        for b in extreme {
            let row = Row {
                reported: Reported::Fresh { others: b },
                slots: Some(a),
                own: b,
                ..Row::idle(a)
            };
            let mut table = Table::new(vec![row, Row::idle(1.0), Row::idle(b)]);
            for slots in [Slots::Used, Slots::Ignored] {
                let method = Method::LiSlots(Demand { unseen: a, departed: b, slots });
                assert!(!picker.pick(method, &mut table, &mut chance, 3).order.is_empty());
            }
        }
    }
}

#[test]
fn one_unseen_request_joins_the_shortest_queue() {
    let load = |n: u32| Row { reported: Reported::Fresh { others: n.into() }, ..Row::idle(5.0) };
    let mut table = Table::new((0..64).map(|i| load((i * 37 + 11) % 64)).collect());
    let method = Method::LiSlots(Demand { unseen: 1.0, departed: 0.0, slots: Slots::Ignored });
    let mut picker = Picker::new();
    let first = picker.pick(method, &mut table, &mut Chance::seeded(4), 1).order[0];
    assert!(table.rows()[first].load() < 1e-9);
}

#[test]
fn floats_agree_with_the_host() {
    let mut success = Success::new(t(0));
    success.record(t(0), Verdict::Failure);
    assert!((success.value(t(0)) - 0.9).abs() < 1e-12);
    assert!((factor(0.5, 1.0) - 0.0625).abs() < 1e-12);
    let mut rate = Rate::new(t(0));
    rate.feed(t(5_000), 50);
    // 10/s × (1 − 1/e)
    assert!((rate.per_second() - 6.321_205_588).abs() < 1e-8);
}

#[test]
fn a_bad_update_changes_nothing() {
    let mut fleet = Fleet::new();
    fleet.apply(t(0), update(1, vec![endpoint("10.0.0.1:80", 0)])).unwrap();
    let before = fleet.clone();
    let bad = update(2, vec![endpoint("nowhere", 0)]);
    assert_eq!(fleet.apply(t(1), bad), Err(UpdateRefused::Address));
    assert_eq!(fleet, before);
}

#[test]
fn five_thousand_endpoints_fit() {
    let endpoints: Vec<_> =
        (0..5_000).map(|i| endpoint(&format!("10.1.{}.{}:80", i / 250, i % 250), 0)).collect();
    let mut gate = gate(Policy::LiSlots, endpoints);
    let (ticket, list, _) = steer(&mut gate, t(1_000), &mut Chance::seeded(5));
    let served = list.split(',').next().map(Arc::<str>::from);
    let facts = ServedFacts { served: served.as_deref(), attempts: 1 };
    gate.on_end(t(1_100), ticket, &facts, &Seen::default());
    assert_eq!(gate.open_requests(), 0);
}

#[test]
fn feedback_covers_a_window() {
    let mut gate = gate(Policy::LiSlots, vec![endpoint("10.0.0.1:80", 0)]);
    let _ = gate.feedback(t(1_000));
    let _ = steer(&mut gate, t(1_100), &mut Chance::seeded(6));
    let feedback = gate.feedback(t(1_500));
    assert_eq!((feedback.window, feedback.services[0].arrivals), (Span::ms(500), 1));
    assert_eq!(feedback.services[0].endpoints[0].in_flight, 1);
}

#[test]
fn a_list_of_addresses_is_strict() {
    assert_eq!(address::parse_list(b"10.0.0.1:80, [::1]:80").unwrap(), ["10.0.0.1:80", "[::1]:80"]);
    for bad in ["", "10.0.0.1", "10.0.0.1:0", "host:80", "10.0.0.1:80;"] {
        assert_eq!(address::parse_list(bad.as_bytes()), None, "{bad}");
    }
}
