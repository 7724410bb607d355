use proptest::prelude::*;
use tidegate_policy::units::{PerMille, Span, Weight};
use tidegate_proto::v1;
use tidegate_weighting::{Explanation, HardState, ServiceSnapshot};

use super::*;
use crate::wire::{Interest, update};

pub(crate) fn endpoint(address: &str, in_flight: u32, age_ms: Option<u64>) -> EndpointSnapshot {
    EndpointSnapshot {
        address: address.into(),
        node: None,
        gpu_type: None,
        weight: Weight::MAX,
        type_weight: Weight::MAX,
        gate: PerMille::FULL,
        hard: HardState::Up,
        in_flight: Some(in_flight),
        slots: None,
        success: None,
        age: age_ms.map(Span::ms),
        memory_free: None,
        healthy_for: None,
        explanation: Explanation::default(),
    }
}

pub(crate) fn fleet(services: &[(&str, &[EndpointSnapshot])]) -> FleetSnapshot {
    let service = |(name, endpoints): &(&str, &[EndpointSnapshot])| ServiceSnapshot {
        name: (*name).into(),
        endpoints: endpoints.to_vec(),
        ..ServiceSnapshot::default()
    };
    FleetSnapshot { services: services.iter().map(service).collect(), alarms: Vec::new() }
}

fn start() -> Snapshot {
    Snapshot::empty(7, Duration::from_millis(500))
}

/// What an update says about endpoints and what is gone, in short.
fn said(snapshot: &Snapshot, since: u64) -> (Vec<String>, Vec<String>) {
    let update = update(snapshot, Some(since), &Interest::default());
    assert!(!update.full);
    let mut gone = update.services_removed;
    let mut there = Vec::new();
    for service in update.services {
        there.extend(service.endpoints.into_iter().map(|e| e.address));
        gone.extend(service.endpoints_removed);
    }
    (there, gone)
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|s| (*s).into()).collect()
}

#[test]
fn epoch_counts_each_step_also_without_changes() {
    let one = start().next(Time::ms(0), fleet(&[("s", &[endpoint("a", 0, None)])]), 3);
    let two = one.next(Time::ms(500), fleet(&[("s", &[endpoint("a", 0, None)])]), 3);
    assert_eq!((one.epoch, two.epoch, two.instance), (1, 2, 7));
    assert_eq!(said(&two, 1), (texts(&[]), texts(&[])));
    let heartbeat = update(&two, Some(1), &Interest::default());
    assert_eq!((heartbeat.epoch, heartbeat.proxies_live), (2, 3));
    assert!(heartbeat.services.is_empty());
}

#[test]
fn only_what_changed_since_is_said() {
    let (a, b) = (endpoint("a", 0, None), endpoint("b", 0, None));
    let one = start().next(Time::ms(0), fleet(&[("s", &[a.clone(), b.clone()])]), 0);
    let two = one.next(Time::ms(500), fleet(&[("s", &[endpoint("a", 1, None), b.clone()])]), 0);
    let three = two.next(Time::ms(900), fleet(&[("s", &[endpoint("a", 1, None)])]), 0);
    assert_eq!(said(&two, 1), (texts(&["a"]), texts(&[])));
    assert_eq!(said(&three, 2), (texts(&[]), texts(&["b"])));
    assert_eq!(said(&three, 1), (texts(&["a"]), texts(&["b"])), "a slow reader gets both");
    assert_eq!(said(&three, 3), (texts(&[]), texts(&[])));
}

#[test]
fn fresh_data_is_a_change_and_ageing_is_not() {
    let one = start().next(Time::ms(1_000), fleet(&[("s", &[endpoint("a", 0, Some(100))])]), 0);
    // The same sample, 500 ms older.
    let two = one.next(Time::ms(1_500), fleet(&[("s", &[endpoint("a", 0, Some(600))])]), 0);
    assert_eq!(said(&two, 1).0, texts(&[]));
    // A new sample with the same numbers.
    let three = two.next(Time::ms(2_000), fleet(&[("s", &[endpoint("a", 0, Some(100))])]), 0);
    assert_eq!(said(&three, 2).0, texts(&["a"]));
}

#[test]
fn service_that_goes_is_removed_and_one_that_comes_back_is_sent_whole() {
    let one = start().next(Time::ms(0), fleet(&[("s", &[endpoint("a", 0, None)])]), 0);
    let two = one.next(Time::ms(1), fleet(&[]), 0);
    assert_eq!(said(&two, 1), (texts(&[]), texts(&["s"])));
    let three = two.next(Time::ms(2), fleet(&[("s", &[endpoint("b", 0, None)])]), 0);
    // Whoever saw the first life and not its end must not keep `a`.
    assert!(!three.knows_changes_since(1));
    assert!(update(&three, Some(1), &Interest::default()).full);
    let four = three.next(Time::ms(3), fleet(&[("s", &[endpoint("b", 0, None)])]), 0);
    assert_eq!(said(&four, 3), (texts(&[]), texts(&[])));
}

#[test]
fn marks_of_what_is_gone_are_bounded() {
    let all: Vec<EndpointSnapshot> =
        (0..=GONE_MAX).map(|i| endpoint(&format!("e{i}"), 0, None)).collect();
    let one = start().next(Time::ms(0), fleet(&[("s", &all)]), 0);
    let at = one.next(Time::ms(1), fleet(&[("s", &all[..1])]), 0);
    assert_eq!(at.gone.len(), GONE_MAX);
    assert!(at.knows_changes_since(1));
    let above = at.next(Time::ms(2), fleet(&[("s", &[])]), 0);
    assert_eq!(above.gone.len(), GONE_MAX);
    assert!(!above.knows_changes_since(1), "too much is gone: everything is sent");
    assert!(above.knows_changes_since(2));
}

#[test]
fn epoch_of_the_future_gets_everything() {
    let one = start().next(Time::ms(0), fleet(&[]), 0);
    assert!(update(&one, Some(2), &Interest::default()).full);
}

/// A receiver as the filter is one.
#[derive(Debug, Default, PartialEq)]
struct Receiver(BTreeMap<String, BTreeMap<String, v1::Endpoint>>);

impl Receiver {
    fn apply(&mut self, update: v1::FleetUpdate) {
        if update.full {
            self.0.clear();
        }
        for name in update.services_removed {
            self.0.remove(&name);
        }
        for service in update.services {
            let endpoints = self.0.entry(service.name).or_default();
            for address in service.endpoints_removed {
                endpoints.remove(&address);
            }
            endpoints.extend(service.endpoints.into_iter().map(|e| (e.address.clone(), e)));
        }
    }
}

/// Up to three services with up to four endpoints, each with some load; names repeat between steps.
fn any_fleet() -> impl Strategy<Value = FleetSnapshot> {
    let endpoints = proptest::collection::btree_map(0_u8..4, 0_u32..3, 0..4);
    proptest::collection::btree_map(0_u8..3, endpoints, 0..3).prop_map(|services| {
        let services = services.into_iter().map(|(name, endpoints)| ServiceSnapshot {
            name: format!("s{name}"),
            endpoints: endpoints
                .into_iter()
                .map(|(address, load)| endpoint(&format!("e{address}"), load, None))
                .collect(),
            ..ServiceSnapshot::default()
        });
        FleetSnapshot { services: services.collect(), alarms: Vec::new() }
    })
}

proptest! {
    /// Whichever snapshots a slow reader misses, it ends where one that gets everything ends.
    #[test]
    fn skipped_snapshots_lose_nothing(
        steps in proptest::collection::vec((any_fleet(), any::<bool>()), 1..20),
    ) {
        let mut snapshot = start();
        let mut reader = Receiver::default();
        let mut sent = None;
        for (i, (fleet, reads)) in steps.into_iter().enumerate() {
            snapshot = snapshot.next(Time::ms(u64::try_from(i).unwrap()), fleet, 0);
            if reads {
                reader.apply(update(&snapshot, sent, &Interest::default()));
                sent = Some(snapshot.epoch);
                let mut whole = Receiver::default();
                whole.apply(update(&snapshot, None, &Interest::default()));
                prop_assert_eq!(&reader, &whole);
            }
        }
    }
}
