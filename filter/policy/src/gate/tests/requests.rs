//! What happens to a request, by service, snapshot and mode.

use proptest::prelude::*;

use super::*;

#[test]
fn a_request_of_no_service_passes() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let facts = RequestFacts { cluster: Some(b"other"), ..RequestFacts::default() };
    let decision = rig.gate.on_request(t(10_000), &mut rig.chance, &facts);
    assert_eq!(decision, Decision::Pass { service: None, reason: PassReason::NoService });
}

#[test]
fn without_a_snapshot_requests_pass() {
    let mut rig = Rig::new("");
    let expected = Decision::Pass { service: Some(0), reason: PassReason::NoSnapshot };
    assert_eq!(rig.ask(t(1)), expected);
    rig.gate.on_tick(t(50));
    assert_eq!(rig.ask(t(60)), expected);
    assert_eq!(rig.gate.rung(), Rung::NoSnapshot);
}

#[test]
fn a_snapshot_that_does_not_name_the_service_is_none() {
    let mut rig = Rig::new("");
    rig.hear_of("other", t(100), vec![up(A)]);
    assert_eq!(
        rig.ask(t(100)),
        Decision::Pass { service: Some(0), reason: PassReason::NoSnapshot }
    );
}

#[test]
fn a_service_without_endpoints_passes() {
    let mut rig = Rig::knowing("", vec![]);
    assert_eq!(
        rig.ask(t(10_000)),
        Decision::Pass { service: Some(0), reason: PassReason::NoEndpoints }
    );
}

#[test]
fn a_request_is_steered_to_the_emptier_endpoint() {
    let busy = EndpointUpdate { in_flight: Some(8), ..up(A) };
    let mut rig = Rig::knowing("", vec![busy, up(B)]);
    let (_, list, reason) = rig.steer(t(10_100));
    assert_eq!((list, reason), (vec![B.into(), A.into()], PickReason::LiSlots));
}

#[test]
fn one_endpoint_is_a_list_of_one() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let (_, list, reason) = rig.steer(t(10_000));
    assert_eq!((list, reason), (vec![A.into()], PickReason::Only));
}

#[test]
fn the_list_has_one_fallback_more_than_retries_up_to_three() {
    let ten: Vec<_> = (1..=10).map(|i| up(&format!("10.0.0.{i}:80"))).collect();
    for (retries, expected) in [(0, 2), (1, 3), (2, 4), (3, 4), (5, 4)] {
        let mut rig = Rig::knowing(&format!(r#", "retries": {retries}"#), ten.clone());
        let Decision::Steer { list, retries: granted, .. } = rig.ask(t(10_000)) else { panic!() };
        assert_eq!(list.split(',').count(), expected, "{retries}");
        assert_eq!(granted, retries);
    }
    // never more than there are
    let mut rig = Rig::knowing(r#", "retries": 5"#, ten[..2].to_vec());
    assert_eq!(rig.steer(t(10_000)).1.len(), 2);
}

#[test]
fn own_requests_count_at_once() {
    // Six requests between two reports over three endpoints alike: two each.
    let mut rig = Rig::knowing("", vec![up(A), up(B), up(C)]);
    for _ in 0..6 {
        rig.steer(t(10_000));
    }
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [2, 2, 2]);
}

#[test]
fn a_report_that_contains_our_requests_does_not_count_them_twice() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    for _ in 0..4 {
        rig.steer(t(10_000));
    }
    rig.gate.on_tick(t(10_050));
    // The next report was sampled at 10.4 s and has our 2 + 2, and 1 more at B by others.
    let with = |address, n| EndpointUpdate { in_flight: Some(n), ..up(address) };
    rig.hear(t(10_500), vec![with(A, 2), with(B, 3)]);
    // Loads 2 and 3: one goes to A; then 3 and 3.
    assert_eq!(rig.steer(t(10_500)).1[0], A);
    let both = [rig.steer(t(10_500)).1.remove(0), rig.steer(t(10_500)).1.remove(0)];
    assert!(both.contains(&A.into()) && both.contains(&B.into()), "{both:?}");
}

#[test]
fn all_down_is_answered_while_the_snapshot_is_fresh() {
    let mut rig = Rig::knowing("", vec![hard(A, Hard::Down), hard(B, Hard::Down)]);
    let mut seconds = alloc::collections::BTreeSet::new();
    for _ in 0..100 {
        match rig.ask(t(40_000)) {
            Decision::Answer { service: 0, status: 503, reason, retry_after_s } => {
                assert_eq!(reason, AnswerReason::NoEndpoints);
                seconds.insert(retry_after_s);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seconds.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    // 10 s + 30 s is believed, a millisecond more is not.
    assert_eq!(
        rig.ask(t(40_001)),
        Decision::Pass { service: Some(0), reason: PassReason::DownLongAgo }
    );
}

#[test]
fn observing_never_answers() {
    let mut rig = Rig::knowing(r#", "mode": "observe""#, vec![hard(A, Hard::Down)]);
    assert_eq!(
        rig.ask(t(10_000)),
        Decision::Pass { service: Some(0), reason: PassReason::DownObserved }
    );
}

#[test]
fn observing_decides_and_tracks_what_envoy_did() {
    let mut rig = Rig::knowing(r#", "mode": "observe""#, vec![up(A), up(B)]);
    let Decision::Steer { ticket, mode, .. } = rig.ask(t(10_000)) else { panic!() };
    assert_eq!(mode, Mode::Observe);
    // Nobody is charged until Envoy says whom it chose.
    assert_eq!([A, B].map(|a| rig.in_flight(a)), [0, 0]);
    let served = ServedFacts { served: Some(B), attempts: 1 };
    rig.gate.on_response_headers(t(10_100), &ticket, &served);
    assert_eq!([A, B].map(|a| rig.in_flight(a)), [0, 1]);
    rig.gate.on_end(t(10_200), ticket, &served, &answered(200));
    assert_eq!((rig.in_flight(B), rig.totals(B).ended_ok), (0, 1));
}

#[test]
fn down_and_draining_endpoints_take_nothing() {
    let mut rig = Rig::knowing("", vec![hard(A, Hard::Down), hard(B, Hard::Draining), up(C)]);
    for _ in 0..50 {
        assert_eq!(rig.steer(t(10_000)).1, [C]);
    }
}

#[test]
fn draining_endpoints_are_the_last_resort() {
    let mut rig = Rig::knowing("", vec![hard(A, Hard::Down), hard(B, Hard::Draining)]);
    let (_, list, reason) = rig.steer(t(10_000));
    assert_eq!((list, reason), (vec![B.into()], PickReason::Draining));
}

#[test]
fn a_gate_of_zero_takes_nothing() {
    let closed = EndpointUpdate { gate: PerMille::ZERO, ..up(A) };
    let mut rig = Rig::knowing("", vec![closed, up(B), up(C)]);
    for _ in 0..50 {
        assert!(!rig.steer(t(10_000)).1.contains(&A.into()));
    }
}

fn ask_with_list(rig: &mut Rig, list: &str) -> Decision {
    let facts = RequestFacts {
        cluster: Some(b"llm"),
        existing_list: Some(list.as_bytes()),
        ..RequestFacts::default()
    };
    rig.gate.on_request(t(10_000), &mut rig.chance, &facts)
}

#[test]
fn an_existing_list_is_reordered_and_filtered_never_extended() {
    let busy = EndpointUpdate { in_flight: Some(9), ..up(A) };
    let endpoints = vec![busy, up(B), up(C), hard("10.0.0.4:80", Hard::Down)];
    let mut rig = Rig::knowing(r#", "existing_list": "reorder""#, endpoints);
    match ask_with_list(&mut rig, "10.0.0.1:80, 10.0.0.4:80,10.0.0.2:80") {
        Decision::Steer { list, reason: PickReason::Reordered, .. } => {
            assert_eq!(list, "10.0.0.2:80,10.0.0.1:80");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_endpoint_of_an_existing_list_stays() {
    let mut rig = Rig::knowing(r#", "existing_list": "reorder""#, vec![up(A), up(B)]);
    match ask_with_list(&mut rig, "10.9.9.9:80,10.0.0.2:80") {
        Decision::Steer { ticket, list, .. } => {
            let mut entries: Vec<_> = list.split(',').collect();
            entries.sort_unstable();
            assert_eq!(entries, [B, "10.9.9.9:80"]);
            rig.end(t(10_100), ticket, "10.9.9.9:80", 200);
            assert_eq!(rig.gate.open_requests(), 0);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_endpoint_does_not_win_because_the_known_one_warms_up() {
    // B warms up at 0.1 of its capacity; the stranger counts as just as warm: half each.
    let warming = EndpointUpdate { healthy_for: Some(Span::ms(0)), ..up(B) };
    let mut rig = Rig::knowing(r#", "existing_list": "reorder""#, vec![up(A), warming]);
    let mut strangers = 0;
    for _ in 0..400 {
        match ask_with_list(&mut rig, "10.9.9.9:80,10.0.0.2:80") {
            Decision::Steer { ticket, list, .. } => {
                strangers += u32::from(list.starts_with("10.9.9.9:80"));
                let served = list.split(',').next().unwrap_or_default();
                rig.end(t(10_000), ticket, served, 200);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((140..260).contains(&strangers), "{strangers} of 400");
}

#[test]
fn an_existing_list_without_a_living_endpoint_stays_as_it_is() {
    let endpoints = vec![hard(A, Hard::Down), hard(B, Hard::Draining), up(C)];
    let mut rig = Rig::knowing(r#", "existing_list": "reorder""#, endpoints);
    assert_eq!(
        ask_with_list(&mut rig, "10.0.0.1:80,10.0.0.2:80"),
        Decision::Pass { service: Some(0), reason: PassReason::ListKept }
    );
}

#[test]
fn an_existing_list_is_replaced_by_default_and_when_it_is_none() {
    for (option, list) in [
        ("", "10.0.0.3:80"),
        (r#", "existing_list": "reorder""#, "nonsense"),
        (r#", "existing_list": "reorder""#, ""),
    ] {
        let mut rig = Rig::knowing(option, vec![up(A)]);
        match ask_with_list(&mut rig, list) {
            Decision::Steer { list, reason: PickReason::Only, .. } => assert_eq!(list, A),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn policies_give_their_reasons() {
    for (policy, expected) in [
        ("li_slots", PickReason::LiSlots),
        ("free_memory", PickReason::FreeMemory),
        ("weighted", PickReason::Weighted),
        ("least_request", PickReason::LeastRequest),
    ] {
        let mut rig =
            Rig::knowing(&format!(r#", "policy": "{policy}""#), vec![up(A), up(B), up(C)]);
        assert_eq!(rig.steer(t(10_000)).2, expected);
    }
}

#[test]
fn reasons_follow_the_ladder() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    // Data was 100 ms old when it came at 10 s; a request takes 2 s.
    for (now, rung, reason) in [
        (10_900, Rung::Full, PickReason::LiSlots),
        (10_901, Rung::Ageing, PickReason::LiSlots),
        (11_900, Rung::Ageing, PickReason::LiSlots),
        (11_901, Rung::Ageing, PickReason::LiPlain),
        (14_900, Rung::Ageing, PickReason::LiPlain),
        (14_901, Rung::CountsIgnored, PickReason::OwnCounts),
        (39_900, Rung::CountsIgnored, PickReason::OwnCounts),
        (39_901, Rung::TypeCapacity, PickReason::TypeCapacity),
        (86_409_901, Rung::EqualWeights, PickReason::EqualWeights),
    ] {
        rig.gate.on_tick(t(now));
        assert_eq!(rig.gate.rung(), rung, "{now}");
        let (ticket, _, found) = rig.steer(t(now));
        assert_eq!(found, reason, "{now}");
        rig.end(t(now), ticket, A, 200);
    }
}

#[test]
fn the_ladder_moves_without_ticks_too() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    assert_eq!(rig.steer(t(60_000)).2, PickReason::TypeCapacity);
    assert_eq!(rig.gate.rung(), Rung::TypeCapacity);
}

#[test]
fn without_counts_in_the_report_own_counts_decide() {
    let silent = |a| EndpointUpdate { in_flight: None, ..up(a) };
    let mut rig = Rig::knowing("", vec![silent(A), silent(B)]);
    let (_, first, reason) = rig.steer(t(10_000));
    assert_eq!(reason, PickReason::OwnCounts);
    assert_ne!(rig.steer(t(10_000)).1[0], first[0]);
}

#[test]
fn a_new_configuration_keeps_counts_and_tickets() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let (ticket, ..) = rig.steer(t(10_000));
    let json = r#"{"version": 1, "services": [
        {"name": "other", "match": {"clusters": ["other"]}},
        {"name": "llm", "match": {"clusters": ["llm"]}, "policy": "weighted"}]}"#;
    rig.gate.reconfigure(t(10_100), Rc::new(config(json)));
    assert_eq!(rig.in_flight(A), 1);
    match rig.ask(t(10_100)) {
        Decision::Steer { service: 1, list, .. } => assert_eq!(list, A),
        other => panic!("{other:?}"),
    }
    rig.end(t(10_200), ticket, A, 200);
    assert_eq!((rig.in_flight(A), rig.totals(A).ended_ok), (1, 1));
}

#[test]
fn a_service_that_is_configured_away_forgets_its_tickets() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let (ticket, ..) = rig.steer(t(10_000));
    let json = r#"{"version": 1, "services": [{"name": "x", "match": {"clusters": ["x"]}}]}"#;
    rig.gate.reconfigure(t(10_100), Rc::new(config(json)));
    assert_eq!(rig.gate.open_requests(), 0);
    assert_eq!(rig.end(t(10_200), ticket, A, 200), Outcome::Ok);
}

#[test]
fn an_endpoint_that_is_gone_takes_nothing_and_keeps_its_count() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let (ticket, ..) = rig.steer(t(10_000));
    rig.hear(t(10_500), vec![up(B)]);
    assert_eq!(rig.steer(t(10_500)).1, [B]);
    assert_eq!(rig.in_flight(A), 1);
    rig.end(t(11_000), ticket, A, 200);
    rig.gate.on_tick(t(11_050));
    assert_eq!(rig.gate.totals("llm", A), None);
}

fn any_endpoint() -> impl Strategy<Value = EndpointUpdate> {
    let option = |max: u32| proptest::option::of(prop_oneof![0..=max, Just(u32::MAX)]);
    (
        (0_u8..20, any::<u32>(), option(100), option(100), any::<u32>()),
        (option(10_000), proptest::option::of(any::<u64>()), 0_u8..3, 0_u8..3),
        (option(10_000), proptest::option::of(any::<u64>())),
    )
        .prop_map(
            |((host, weight, n, slots, gate), (success, age, hard, node), (memory, healthy))| {
                EndpointUpdate {
                    weight: Weight::clamped(weight),
                    in_flight: n,
                    slots,
                    gate: PerMille::clamped(gate),
                    success: success.map(BasisPoints::clamped),
                    age: age.map(Span::ms),
                    hard: [Hard::Up, Hard::Draining, Hard::Down][usize::from(hard)],
                    node: format!("{node}"),
                    memory_free: memory.map(BasisPoints::clamped),
                    healthy_for: healthy.map(Span::ms),
                    ..up(&format!("10.0.1.{host}:80"))
                }
            },
        )
}

proptest! {
    #[test]
    fn whatever_the_fleet_says_only_members_that_are_not_down_are_picked(
        endpoints in proptest::collection::vec(any_endpoint(), 0..20),
        policy in 0_usize..4, times in proptest::collection::vec(any::<u64>(), 1..6),
    ) {
        let mut unique: BTreeMap<String, EndpointUpdate> = BTreeMap::new();
        for e in endpoints {
            unique.insert(e.address.clone(), e);
        }
        let policy = Policy::ALL[policy].as_str();
        let mut rig = Rig::new(&format!(r#", "policy": "{policy}""#));
        let list: Vec<_> = unique.values().cloned().collect();
        rig.hear(t(times[0]), list);
        for now in times {
            let now = t(now);
            match rig.ask(now) {
                Decision::Steer { ticket, list, .. } => {
                    let entries: Vec<&str> = list.split(',').collect();
                    prop_assert!(entries.len() <= unique.len().min(4));
                    let distinct: alloc::collections::BTreeSet<_> = entries.iter().collect();
                    prop_assert_eq!(distinct.len(), entries.len());
                    for entry in &entries {
                        prop_assert_ne!(unique[*entry].hard, Hard::Down);
                    }
                    rig.end(now, ticket, entries[0], 500);
                }
                Decision::Answer { .. } => {
                    prop_assert!(unique.values().all(|e| e.hard == Hard::Down));
                }
                Decision::Pass { .. } => {}
            }
            rig.gate.on_tick(now);
            rig.gate.on_snapshot(now, &rig.fleet);
        }
    }
}
