use std::time::Duration;

use tidegate_policy::units::{BasisPoints, PerMille, Time, Weight};
use tidegate_weighting::{Explanation, FleetSnapshot, ServiceSnapshot};

use super::*;

fn endpoint(address: &str) -> EndpointSnapshot {
    EndpointSnapshot {
        address: address.into(),
        node: Some("node-a".into()),
        gpu_type: Some("NVIDIA L4".into()),
        weight: Weight::clamped(4_500),
        type_weight: Weight::clamped(4_000),
        gate: PerMille::clamped(250),
        hard: HardState::Draining,
        in_flight: Some(3),
        slots: Some(8),
        success: Some(BasisPoints::clamped(9_900)),
        age: Some(Span::ms(120)),
        memory_free: Some(BasisPoints::clamped(5_000)),
        healthy_for: Some(Span::secs(300)),
        explanation: Explanation::default(),
    }
}

fn snapshot(endpoints: &[EndpointSnapshot]) -> Snapshot {
    let service = |name: &str| ServiceSnapshot {
        name: name.into(),
        arrival_rate: Some(12.5),
        mean_service: Some(Span::ms(900)),
        proxies_live: 2,
        endpoints: endpoints.to_vec(),
    };
    let fleet = FleetSnapshot { services: vec![service("a"), service("b")], alarms: Vec::new() };
    Snapshot::empty(9, Duration::from_millis(500)).next(Time::ms(1_000), fleet, 2)
}

#[test]
fn every_field_reaches_the_wire() {
    let update = update(&snapshot(&[endpoint("1.1.1.1:1")]), None, &Interest::default());
    assert_eq!((update.epoch, update.instance, update.period_ms), (1, 9, 500));
    assert_eq!((update.proxies_live, update.full), (2, true));
    let service = &update.services[0];
    assert_eq!((service.arrival_rate, service.mean_service_ms), (Some(12.5), Some(900)));
    let expected = v1::Endpoint {
        address: "1.1.1.1:1".into(),
        weight: 4_500,
        in_flight: Some(3),
        slots: Some(8),
        gate_pm: 250,
        success_bp: Some(9_900),
        age_ms: Some(120),
        hard: v1::HardState::Draining.into(),
        node: "node-a".into(),
        gpu_type: "NVIDIA L4".into(),
        type_weight: 4_000,
        memory_free_bp: Some(5_000),
        healthy_for_ms: Some(300_000),
    };
    assert_eq!(service.endpoints, [expected]);
}

#[test]
fn unknown_is_absent_and_never_zero() {
    let unknown = EndpointSnapshot {
        node: None,
        gpu_type: None,
        in_flight: None,
        slots: None,
        success: None,
        age: None,
        memory_free: None,
        healthy_for: None,
        ..endpoint("1.1.1.1:1")
    };
    let update = update(&snapshot(&[unknown]), None, &Interest::default());
    let e = &update.services[0].endpoints[0];
    assert_eq!((e.in_flight, e.slots, e.success_bp, e.age_ms), (None, None, None, None));
    assert_eq!((e.memory_free_bp, e.healthy_for_ms, e.node.as_str()), (None, None, ""));
}

#[test]
fn health_is_told_for_as_long_as_the_longest_slow_start() {
    for (ms, expected) in [(599_999, Some(599_999)), (600_000, Some(600_000)), (600_001, None)] {
        let e = EndpointSnapshot { healthy_for: Some(Span::ms(ms)), ..endpoint("1.1.1.1:1") };
        let update = update(&snapshot(&[e]), None, &Interest::default());
        assert_eq!(update.services[0].endpoints[0].healthy_for_ms, expected, "{ms}");
    }
}

#[test]
fn proxy_hears_only_of_its_services() {
    let snapshot = snapshot(&[endpoint("1.1.1.1:1")]);
    let names = |interest: &[&str]| {
        let interest = Interest(interest.iter().map(|s| (*s).into()).collect());
        let update = update(&snapshot, None, &interest);
        update.services.into_iter().map(|s| s.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&["b"]), ["b"]);
    assert_eq!(names(&["a", "nobody"]), ["a"]);
    assert_eq!(names(&[]), ["a", "b"], "no name asks for all");
}

#[test]
fn gone_services_of_others_are_not_mentioned() {
    let next = snapshot(&[]).next(Time::ms(2_000), FleetSnapshot::default(), 0);
    let removed = |interest: &[&str]| {
        let interest = Interest(interest.iter().map(|s| (*s).into()).collect());
        update(&next, Some(1), &interest).services_removed
    };
    assert_eq!(removed(&["b"]), ["b"]);
    assert_eq!(removed(&[]), ["a", "b"]);
}
