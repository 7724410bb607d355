use alloc::{format, vec};

use super::*;
use crate::units::Time;

fn t(ms: u64) -> Time {
    Time::ms(ms)
}

fn endpoint(address: &str) -> EndpointUpdate {
    EndpointUpdate {
        address: address.into(),
        weight: Weight::clamped(100),
        in_flight: Some(3),
        slots: Some(8),
        gate: PerMille::FULL,
        success: None,
        age: Some(Span::ms(100)),
        hard: Hard::Up,
        node: "node-a".into(),
        gpu_type: "a100".into(),
        type_weight: Weight::clamped(90),
        memory_free: None,
        healthy_for: None,
    }
}

fn service(name: &str, endpoints: Vec<EndpointUpdate>) -> ServiceUpdate {
    ServiceUpdate {
        name: name.into(),
        arrival_rate: Some(10.0),
        endpoints,
        endpoints_removed: vec![],
        mean_service: Some(Span::secs(2)),
    }
}

fn update(epoch: u64, extent: Extent, services: Vec<ServiceUpdate>) -> Update {
    Update {
        epoch,
        instance: 7,
        period: Span::ms(500),
        proxies_live: 3,
        extent,
        services,
        services_removed: vec![],
    }
}

fn numbered(n: usize) -> Vec<EndpointUpdate> {
    (0..n).map(|i| endpoint(&format!("10.0.{}.{}:80", i / 256, i % 256))).collect()
}

fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    let services = vec![
        service("a", vec![endpoint("10.0.0.1:80"), endpoint("10.0.0.2:80")]),
        service("b", vec![endpoint("10.0.0.9:80")]),
    ];
    fleet.apply(t(1_000), update(5, Extent::Full, services)).unwrap();
    fleet
}

/// Applies what must be refused, and proves that nothing changed.
fn refused(mut update: Update, expected: UpdateRefused) {
    let mut state = fleet();
    let before = state.clone();
    update.services.push(service("new", vec![endpoint("10.9.9.9:80")]));
    assert_eq!(state.apply(t(2_000), update), Err(expected));
    assert_eq!(state, before);
}

#[test]
fn an_empty_fleet_has_no_age() {
    let fleet = Fleet::new();
    assert_eq!(fleet.age(t(5)), None);
    assert_eq!(fleet.period(), Span::ms(500));
    assert_eq!(fleet.export(t(5)), None);
}

#[test]
fn a_full_update_replaces_everything() {
    let mut fleet = fleet();
    let services = vec![service("a", vec![endpoint("10.0.0.3:80")])];
    fleet.apply(t(2_000), update(6, Extent::Full, services)).unwrap();
    assert!(fleet.service("b").is_none());
    let a = fleet.service("a").unwrap();
    assert_eq!((a.len(), a.endpoint("10.0.0.1:80")), (1, None));
    assert_eq!(fleet.age(t(2_300)), Some(Span::ms(300)));
}

#[test]
fn changes_touch_what_they_list() {
    let mut fleet = fleet();
    let mut changed =
        service("a", vec![EndpointUpdate { in_flight: Some(9), ..endpoint("10.0.0.2:80") }]);
    changed.endpoints_removed = vec!["10.0.0.1:80".into()];
    let mut changes = update(6, Extent::Changes, vec![changed]);
    changes.services_removed = vec!["b".into(), "never seen".into()];
    fleet.apply(t(1_500), changes).unwrap();
    let a = fleet.service("a").unwrap();
    assert_eq!(a.len(), 1);
    assert_eq!(a.endpoint("10.0.0.2:80").unwrap().in_flight, Some(9));
    assert!(fleet.service("b").is_none());
    assert_eq!((fleet.epoch(), fleet.received()), (Some(6), Some(t(1_500))));
}

#[test]
fn an_empty_change_confirms_the_rest_while_its_data_grows_older() {
    let mut fleet = fleet();
    fleet.apply(t(9_000), update(6, Extent::Changes, vec![])).unwrap();
    assert_eq!(fleet.age(t(9_000)), Some(Span::ZERO));
    let a = fleet.service("a").unwrap();
    assert_eq!(a.len(), 2);
    // 100 ms when it was listed at 1 s, and 8 s since
    assert_eq!(a.endpoint("10.0.0.1:80").unwrap().data_age(t(9_000)), Some(Span::ms(8_100)));
}

#[test]
fn a_control_plane_without_data_does_not_raise_the_dead() {
    let says = |instance, ms, hard, age: Option<u64>| {
        let e = EndpointUpdate { hard, age: age.map(Span::ms), ..endpoint("10.0.0.1:80") };
        let update = Update { instance, ..update(ms, Extent::Full, vec![service("a", vec![e])]) };
        (t(ms), update)
    };
    let hard = |fleet: &Fleet| fleet.service("a").unwrap().endpoint("10.0.0.1:80").unwrap().hard;
    let mut down = Fleet::new();
    let (at, update) = says(7, 1_000, Hard::Down, Some(100));
    down.apply(at, update).unwrap();
    // Each row: what came after, and what is believed then. Instance 8 has just started.
    for (name, rows) in [
        ("data settles it", vec![(8, 60_000, None, Hard::Down), (8, 60_500, Some(0), Hard::Up)]),
        (
            "doubt ends after 30 s, whatever was before the restart",
            vec![
                (8, 60_000, None, Hard::Down),
                (8, 90_000, None, Hard::Down),
                (8, 90_001, None, Hard::Up),
            ],
        ),
        ("who said down may take it back", vec![(7, 60_000, None, Hard::Up)]),
        ("data from the start", vec![(8, 60_000, Some(0), Hard::Up)]),
    ] {
        let mut fleet = down.clone();
        for (instance, ms, age, expected) in rows {
            let (at, update) = says(instance, ms, Hard::Up, age);
            fleet.apply(at, update).unwrap();
            assert_eq!(hard(&fleet), expected, "{name} at {ms}");
        }
    }
}

#[test]
fn epochs_only_grow_within_an_instance() {
    for epoch in [0, 4, 5] {
        refused(update(epoch, Extent::Changes, vec![]), UpdateRefused::Old { epoch, have: 5 });
    }
    refused(update(4, Extent::Full, vec![]), UpdateRefused::Old { epoch: 4, have: 5 });
    // The same full state again, as after a reconnect, confirms it.
    assert_eq!(fleet().apply(t(2_000), update(5, Extent::Full, vec![])), Ok(()));
    assert_eq!(fleet().apply(t(2_000), update(u64::MAX, Extent::Changes, vec![])), Ok(()));
}

#[test]
fn another_instance_must_start_with_its_full_state() {
    let other = |extent| Update { instance: 8, ..update(1, extent, vec![]) };
    refused(other(Extent::Changes), UpdateRefused::NoBase { instance: 8 });
    assert_eq!(fleet().apply(t(2_000), other(Extent::Full)), Ok(()));
    let first = update(1, Extent::Changes, vec![]);
    assert_eq!(Fleet::new().apply(t(0), first), Err(UpdateRefused::NoBase { instance: 7 }));
}

#[test]
fn endpoints_at_the_limit_and_one_over() {
    let with = |n| update(6, Extent::Full, vec![service("c", numbered(n))]);
    assert_eq!(fleet().apply(t(0), with(ENDPOINTS_MAX)), Ok(()));
    refused(with(ENDPOINTS_MAX + 1), UpdateRefused::TooManyEndpoints { limit: ENDPOINTS_MAX });
}

#[test]
fn changes_cannot_grow_a_service_over_the_limit() {
    let mut fleet = Fleet::new();
    let full = update(1, Extent::Full, vec![service("c", numbered(ENDPOINTS_MAX))]);
    fleet.apply(t(0), full).unwrap();
    let one_more = |removed: &[&str]| {
        let mut s = service("c", vec![endpoint("10.200.0.1:80")]);
        s.endpoints_removed = removed.iter().map(|a| (*a).into()).collect();
        update(2, Extent::Changes, vec![s])
    };
    let over = Err(UpdateRefused::TooManyEndpoints { limit: ENDPOINTS_MAX });
    assert_eq!(fleet.clone().apply(t(1), one_more(&[])), over);
    assert_eq!(fleet.apply(t(1), one_more(&["10.0.0.0:80"])), Ok(()));
    // A known endpoint listed again is not one more.
    let again = update(3, Extent::Changes, vec![service("c", vec![endpoint("10.0.0.1:80")])]);
    assert_eq!(fleet.apply(t(2), again), Ok(()));
}

#[test]
fn services_at_the_limit_and_one_over() {
    let with = |n: usize| {
        update(6, Extent::Full, (0..n).map(|i| service(&format!("s{i}"), vec![])).collect())
    };
    assert_eq!(fleet().apply(t(0), with(SERVICES_MAX)), Ok(()));
    refused(with(SERVICES_MAX), UpdateRefused::TooManyServices { limit: SERVICES_MAX });
    // Two are there already.
    let mut changes = with(SERVICES_MAX - 1);
    changes.extent = Extent::Changes;
    let over = Err(UpdateRefused::TooManyServices { limit: SERVICES_MAX });
    assert_eq!(fleet().apply(t(0), changes.clone()), over);
    changes.services_removed = vec!["a".into()];
    assert_eq!(fleet().apply(t(0), changes), Ok(()));
}

#[test]
fn names_at_the_limit_and_one_over() {
    let name = "n".repeat(NAME_BYTES_MAX);
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let refusal = UpdateRefused::Name { limit_bytes: NAME_BYTES_MAX };
    let node = |node: &str| {
        let e = EndpointUpdate { node: node.into(), ..endpoint("10.0.0.1:80") };
        update(6, Extent::Full, vec![service("a", vec![e])])
    };
    let kind = |kind: &str| {
        let e = EndpointUpdate { gpu_type: kind.into(), ..endpoint("10.0.0.1:80") };
        update(6, Extent::Full, vec![service("a", vec![e])])
    };
    let named = |name: &str| update(6, Extent::Full, vec![service(name, vec![])]);
    for good in [node(&name), node(""), kind(&name), kind(""), named(&name)] {
        assert_eq!(fleet().apply(t(0), good), Ok(()));
    }
    for bad in [node(&long), kind(&long), named(&long), named("")] {
        refused(bad, refusal);
    }
}

#[test]
fn an_endpoint_is_an_address() {
    for bad in ["", "llm.example:80", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:80,10.0.0.2:80", "a\nb:1"]
    {
        let listed = update(6, Extent::Full, vec![service("a", vec![endpoint(bad)])]);
        refused(listed, UpdateRefused::Address);
    }
}

#[test]
fn nothing_stands_twice() {
    let twice = vec![endpoint("10.0.0.1:80"), endpoint("10.0.0.1:80")];
    refused(update(6, Extent::Full, vec![service("a", twice)]), UpdateRefused::Twice);
    // Two spellings of one address are one endpoint.
    let spelled = vec![endpoint("[::1]:80"), endpoint("[0:0::1]:80")];
    refused(update(6, Extent::Full, vec![service("a", spelled)]), UpdateRefused::Twice);
    let services = vec![service("a", vec![]), service("a", vec![])];
    refused(update(6, Extent::Full, services), UpdateRefused::Twice);
}

#[test]
fn numbers_that_say_nothing_become_unknown() {
    for rate in [f64::NAN, f64::INFINITY, -1.0] {
        let mut s =
            service("a", vec![EndpointUpdate { slots: Some(0), ..endpoint("10.0.0.1:80") }]);
        s.arrival_rate = Some(rate);
        s.mean_service = Some(Span::ZERO);
        let mut fleet = Fleet::new();
        fleet.apply(t(0), update(1, Extent::Full, vec![s])).unwrap();
        let a = fleet.service("a").unwrap();
        assert_eq!((a.arrival_rate, a.mean_service), (None, None));
        assert_eq!(a.endpoint("10.0.0.1:80").unwrap().slots, None);
    }
}

#[test]
fn the_period_stays_within_reason() {
    for (period, expected) in [(0, 50), (50, 50), (500, 500), (u64::MAX, 60_000)] {
        let mut fleet = Fleet::new();
        let u = Update { period: Span::ms(period), ..update(1, Extent::Full, vec![]) };
        fleet.apply(t(0), u).unwrap();
        assert_eq!(fleet.period(), Span::ms(expected));
    }
}

#[test]
fn an_export_carries_the_state_with_grown_ages() {
    let fleet = fleet();
    let export = fleet.export(t(1_250)).unwrap();
    assert_eq!(export.extent, Extent::Full);
    // 100 ms when sent, 250 ms since it came
    assert_eq!(export.services[0].endpoints[0].age, Some(Span::ms(350)));
    let mut copy = Fleet::new();
    copy.apply(t(1_250), export).unwrap();
    assert_eq!((copy.epoch(), copy.instance()), (fleet.epoch(), fleet.instance()));
    assert_eq!(copy.services().count(), 2);
    // The same export again is no news and no error.
    assert_eq!(copy.apply(t(1_300), fleet.export(t(1_300)).unwrap()), Ok(()));
}
