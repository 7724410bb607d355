//! Success rates, slow start, panic and silence, seen through the picks.

use super::*;

const FOUR: [&str; 4] = [A, B, C, "10.0.0.4:80"];

fn four() -> Vec<EndpointUpdate> {
    FOUR.iter().map(|a| up(a)).collect()
}

fn fail(rig: &mut Rig, now: Time, address: &str, times: u32) {
    let service = rig.gate.services.get_mut(0).unwrap();
    for _ in 0..times {
        service.judge(now, address, Verdict::Failure);
    }
}

use crate::success::Verdict;

const WEIGHTED: &str = r#", "policy": "weighted""#;

#[test]
fn an_endpoint_that_fails_becomes_a_trickle() {
    let mut rig = Rig::knowing(WEIGHTED, four());
    fail(&mut rig, t(10_000), A, 40);
    // 0.9^40 = 0.015, floored at 0.1; 0.1^4 is floored at 0.001: 0.001 / 3.001
    assert!(rig.shares(t(10_000), 5_000, &[A])[0] < 0.003);
}

#[test]
fn a_failing_endpoint_that_looks_idle_is_no_sink() {
    // A fails at once, so it is always empty; the others are busy.
    let busy = |a| EndpointUpdate { in_flight: Some(6), ..up(a) };
    let mut rig = Rig::knowing("", vec![up(A), busy(B), busy(C), busy(FOUR[3])]);
    let (mut to_a, total) = (0, 3_000);
    for i in 0..total {
        let now = t(10_000 + i / 10);
        let (ticket, list, _) = rig.steer(now);
        if list[0] == A {
            to_a += 1;
            rig.end(now, ticket, A, 500);
        } else {
            rig.end(now, ticket, &list[0], 200);
        }
    }
    // It takes ~25 failures to fall under 0.1; after that it gets nothing.
    assert!(to_a < 60, "{to_a}");
}

#[test]
fn a_fault_that_all_share_changes_nothing() {
    let mut rig = Rig::knowing(WEIGHTED, four());
    for address in FOUR {
        fail(&mut rig, t(10_000), address, 20);
    }
    for share in rig.shares(t(10_000), 8_000, &FOUR) {
        assert!((share - 0.25).abs() < 0.03, "{share}");
    }
}

#[test]
fn the_fleet_may_know_worse_than_we_do() {
    let mut endpoints = four();
    // 0.5 against a median of 1: 0.5^4 = 0.0625; 0.0625 / 3.0625 = 2 %
    endpoints[0].success = Some(BasisPoints::clamped(5_000));
    let mut rig = Rig::knowing(WEIGHTED, endpoints);
    let share = rig.shares(t(10_000), 10_000, &[A])[0];
    assert!((share - 0.0204).abs() < 0.006, "{share}");
}

#[test]
fn old_gates_and_fleet_rates_are_not_believed() {
    let mut endpoints = four();
    endpoints[0].success = Some(BasisPoints::clamped(1_000));
    endpoints[0].gate = PerMille::clamped(100);
    let mut rig = Rig::knowing(WEIGHTED, endpoints);
    assert!(rig.shares(t(39_000), 2_000, &[A])[0] < 0.01);
    assert!((rig.shares(t(41_000), 8_000, &[A])[0] - 0.25).abs() < 0.03);
}

#[test]
fn success_heals_with_time() {
    let mut rig = Rig::knowing(WEIGHTED, four());
    fail(&mut rig, t(10_000), A, 40);
    rig.hear(t(54_800), four());
    // 0.1 + 0.02 × 44.8 = 0.996; ^4 = 0.984
    let share = rig.shares(t(54_800), 8_000, &[A])[0];
    assert!((share - 0.247).abs() < 0.03, "{share}");
}

#[test]
fn a_new_endpoint_starts_with_a_tenth() {
    let mut endpoints = four();
    endpoints[0].healthy_for = Some(Span::ZERO);
    let mut rig = Rig::knowing(WEIGHTED, endpoints);
    // 0.1 / 3.1
    let share = rig.shares(t(10_000), 10_000, &[A])[0];
    assert!((share - 0.0323).abs() < 0.008, "{share}");
    // half way through 60 s: 0.5 / 3.5, though the control plane has said nothing since
    let share = rig.shares(t(40_000), 10_000, &[A])[0];
    assert!((share - 0.143).abs() < 0.015, "{share}");
}

#[test]
fn slow_start_can_be_switched_off() {
    let mut endpoints = four();
    endpoints[0].healthy_for = Some(Span::ZERO);
    let mut rig = Rig::knowing(r#", "policy": "weighted", "slow_start_ms": 0"#, endpoints);
    let share = rig.shares(t(10_000), 8_000, &[A])[0];
    assert!((share - 0.25).abs() < 0.03, "{share}");
}

#[test]
fn the_weight_of_a_new_endpoint_is_that_of_its_kind() {
    let mut endpoints = four();
    // Measured without traffic: nonsense. Its kind has 100.
    endpoints[0].weight = Weight::clamped(10_000);
    endpoints[0].healthy_for = Some(Span::secs(6));
    let mut rig = Rig::knowing(WEIGHTED, endpoints.clone());
    // ramp 6/60 = 0.1: 10 / 310
    let share = rig.shares(t(10_000), 10_000, &[A])[0];
    assert!((share - 0.0323).abs() < 0.008, "{share}");
    // After 10 s its own weight counts: 0.167 × 10000 / (1667 + 300)
    let share = rig.shares(t(14_000), 5_000, &[A])[0];
    assert!((share - 0.847).abs() < 0.03, "{share}");
    // Alone of its kind there is no other weight to take.
    endpoints[0].gpu_type = "l4".into();
    let mut rig = Rig::knowing(WEIGHTED, endpoints);
    // 0.1 × 10000 / 1300
    assert!((rig.shares(t(10_000), 5_000, &[A])[0] - 0.769).abs() < 0.03);
}

#[test]
fn panic_at_half_the_capacity() {
    let gates = |pm: [u32; 4]| -> Vec<EndpointUpdate> {
        let with = |(a, pm): (&&str, u32)| EndpointUpdate { gate: PerMille::clamped(pm), ..up(a) };
        FOUR.iter().zip(pm).map(with).collect()
    };
    // 0 + 0 + 100 + 100 of 400 is half: no panic
    let mut rig = Rig::knowing("", gates([0, 0, 1_000, 1_000]));
    assert_eq!(rig.steer(t(10_000)).2, PickReason::LiSlots);
    // 199.9 of 400 is less than half
    let mut rig = Rig::knowing(WEIGHTED, gates([0, 0, 999, 1_000]));
    assert_eq!(rig.steer(t(10_000)).2, PickReason::Panic);
    // then gates do not count
    for share in rig.shares(t(10_000), 8_000, &FOUR) {
        assert!((share - 0.25).abs() < 0.03, "{share}");
    }
}

#[test]
fn panic_counts_capacity_not_endpoints() {
    let closed = |a| EndpointUpdate { gate: PerMille::ZERO, ..up(a) };
    let big = EndpointUpdate { weight: Weight::clamped(1_000), ..up(FOUR[3]) };
    // 1000 of 1300 is left, though three of four are closed
    let mut rig = Rig::knowing("", vec![closed(A), closed(B), closed(C), big]);
    assert_eq!(rig.steer(t(10_000)).2, PickReason::Only);
}

#[test]
fn down_endpoints_count_towards_panic_and_stay_out() {
    let endpoints =
        vec![hard(A, Hard::Down), hard(B, Hard::Down), hard(C, Hard::Down), up(FOUR[3])];
    let mut rig = Rig::knowing("", endpoints);
    let (_, list, reason) = rig.steer(t(10_000));
    assert_eq!((list, reason), (vec![FOUR[3].into()], PickReason::Panic));
}

#[test]
fn draining_and_starting_are_no_panic() {
    let draining = FOUR[..3].iter().map(|a| hard(a, Hard::Draining));
    let mut rig = Rig::knowing("", draining.chain([up(FOUR[3])]).collect());
    assert_eq!(rig.steer(t(10_000)).2, PickReason::Only);
    let starting = |a: &&str| EndpointUpdate { healthy_for: Some(Span::ZERO), ..up(a) };
    let mut rig = Rig::knowing("", FOUR.iter().map(starting).collect());
    assert_ne!(rig.steer(t(10_000)).2, PickReason::Panic);
}

#[test]
fn a_silent_endpoint_is_not_an_idle_one() {
    let busy = |a| EndpointUpdate { in_flight: Some(5), ..up(a) };
    // A was last heard 5 s and a bit ago, and said 0.
    let age = |ms| EndpointUpdate { age: Some(Span::ms(ms)), ..up(A) };
    let mut rig = Rig::knowing("", vec![age(5_001), busy(B), busy(C)]);
    // It counts as the mean, 5: all three are alike.
    let share = rig.shares(t(10_000), 3_000, &[A])[0];
    assert!((share - 0.333).abs() < 0.04, "{share}");
    // At 5 s it is still believed.
    let mut rig = Rig::knowing("", vec![age(5_000), busy(B), busy(C)]);
    assert!(rig.shares(t(10_000), 100, &[A])[0] >= 1.0);
}

#[test]
fn an_endpoint_that_is_no_longer_listed_grows_silent() {
    let busy = |a| EndpointUpdate { in_flight: Some(5), ..up(a) };
    let mut rig = Rig::knowing("", vec![up(A), busy(B), busy(C)]);
    // The control plane has news of B and C only; A said 0, 100 ms before 10 s.
    for step in 1..=10 {
        let now = t(10_000 + step * 500);
        rig.hear_changes(now, vec![busy(B), busy(C)]);
        let share = rig.shares(now, 300, &[A])[0];
        // Believed up to 5 s: 4.6 s at step 9, 5.1 s at step 10.
        assert_eq!(share >= 1.0, step < 10, "{step}: {share}");
    }
    assert_eq!(rig.gate.rung(), Rung::Full);
}

#[test]
fn a_control_plane_without_news_descends_the_ladder() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    rig.hear_changes(t(16_000), vec![]);
    assert_eq!(rig.gate.rung(), Rung::CountsIgnored);
    rig.hear_changes(t(60_000), vec![]);
    assert_eq!(rig.gate.rung(), Rung::TypeCapacity);
}

#[test]
fn the_rung_is_that_of_the_freshest_data() {
    let age = |a, ms| EndpointUpdate { age: Some(Span::ms(ms)), ..up(a) };
    let rung = |endpoints| Rig::knowing("", endpoints).gate.rung();
    assert_eq!(rung(vec![age(A, 60_000), age(B, 100)]), Rung::Full);
    assert_eq!(rung(vec![age(A, 60_000), age(B, 200_000)]), Rung::TypeCapacity);
    let none = |a| EndpointUpdate { age: None, ..up(a) };
    // Filters' own counts without any GPU report: as old as the update.
    assert_eq!(rung(vec![none(A), none(B)]), Rung::Full);
}

#[test]
fn weights_fall_back_to_the_type_and_then_to_equal() {
    let with = |a, weight, kind| EndpointUpdate {
        weight: Weight::clamped(weight),
        type_weight: Weight::clamped(kind),
        ..up(a)
    };
    let endpoints = vec![with(A, 900, 300), with(B, 100, 100)];
    let mut rig = Rig::knowing(WEIGHTED, endpoints);
    // Up to 30 s, up to a day, and beyond.
    for (now, expected) in [(10_000, 0.9), (41_000, 0.75), (200_000, 0.75), (86_411_000, 0.5)] {
        let share = rig.shares(t(now), 5_000, &[A])[0];
        assert!((share - expected).abs() < 0.03, "{now}: {share}");
    }
}

#[test]
fn one_dead_reporter_does_not_age_those_that_never_had_one() {
    let reported = |age_s| EndpointUpdate { age: Some(Span::secs(age_s)), ..up(A) };
    let counted = EndpointUpdate { age: None, ..up(B) };
    let unknown = EndpointUpdate { in_flight: None, ..counted.clone() };
    for (endpoints, expected) in [
        // What the proxies count is as new as the update.
        (vec![reported(200), counted.clone()], Rung::Full),
        (vec![reported(200), unknown.clone()], Rung::TypeCapacity),
        (vec![counted], Rung::Full),
        (vec![unknown], Rung::Full),
    ] {
        let rig = Rig::knowing("", endpoints.clone());
        assert_eq!(rig.gate.rung(), expected, "{endpoints:?}");
    }
}
