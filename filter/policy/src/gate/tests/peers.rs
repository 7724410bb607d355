//! Several workers of one Envoy, and what they tell the control plane.

use super::*;
use crate::local::{EndpointCounts, ServiceCounts};

fn peer(worker: u64, at: Time, arrivals: u64, in_flight: u32, totals: Totals) -> WorkerCounts {
    let endpoint = EndpointCounts { address: Arc::from(A), in_flight, totals };
    let service = ServiceCounts { service: Arc::from("llm"), arrivals, endpoints: vec![endpoint] };
    WorkerCounts { worker, at, services: vec![service] }
}

#[test]
fn requests_of_other_workers_count_as_load() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    rig.gate.on_peers(t(10_000), vec![peer(2, t(10_000), 3, 3, Totals::default())]);
    // A has 3 of theirs: three of ours go to B first.
    let firsts: Vec<String> = (0..3).map(|_| rig.steer(t(10_000)).1.remove(0)).collect();
    assert_eq!(firsts, [B, B, B]);
}

#[test]
fn a_silent_worker_is_dropped_after_two_seconds() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    rig.gate.on_peers(t(10_000), vec![peer(2, t(10_000), 3, 9, Totals::default())]);
    rig.gate.on_tick(t(12_000));
    assert_eq!(rig.gate.peers.len(), 1);
    rig.gate.on_tick(t(12_001));
    assert_eq!(rig.gate.peers.len(), 0);
    assert_eq!(rig.gate.services[0].endpoints()[0].local.peers, 0);
}

#[test]
fn own_counts_are_no_peer() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    rig.gate.on_peers(t(10_000), vec![peer(1, t(10_000), 3, 9, Totals::default())]);
    assert!(rig.gate.peers.is_empty());
}

#[test]
fn counts_leave_out_what_never_happened() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    let counts = rig.gate.counts(t(10_000));
    assert_eq!((counts.worker, counts.services[0].endpoints.len()), (1, 0));
    let (_, list, _) = rig.steer(t(10_000));
    let counts = rig.gate.counts(t(10_100));
    let service = &counts.services[0];
    assert_eq!((service.arrivals, service.endpoints.len()), (1, 1));
    assert_eq!((&*service.endpoints[0].address, service.endpoints[0].in_flight), (&*list[0], 1));
}

#[test]
fn the_first_feedback_has_in_flight_only() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    rig.steer(t(10_000));
    let feedback = rig.gate.feedback(t(10_500));
    assert_eq!(feedback.window, Span::ZERO);
    let service = &feedback.services[0];
    assert_eq!((service.arrivals, service.endpoints[0].in_flight), (0, 1));
    assert!(service.endpoints[0].totals.is_zero());
}

#[test]
fn feedback_covers_its_window() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let _ = rig.gate.feedback(t(10_000));
    let (first, ..) = rig.steer(t(10_100));
    rig.steer(t(10_200));
    rig.gate.on_response_headers(t(10_300), &first, &ServedFacts { served: Some(A), attempts: 1 });
    rig.end(t(10_400), first, A, 200);
    let feedback = rig.gate.feedback(t(10_500));
    assert_eq!((feedback.window, feedback.rung), (Span::ms(500), Rung::Full));
    let service = &feedback.services[0];
    let totals =
        Totals { started: 2, ended_ok: 1, ttft_ms_sum: 200, ttft_count: 1, ..Totals::default() };
    assert_eq!((service.arrivals, service.endpoints[0].in_flight), (2, 1));
    assert_eq!(service.endpoints[0].totals, totals);
    // Nothing new: no totals, one still in flight.
    let service = rig.gate.feedback(t(11_000)).services.remove(0);
    assert_eq!((service.arrivals, service.endpoints[0].totals.is_zero()), (0, true));
}

#[test]
fn feedback_adds_up_the_workers() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let totals = |started| Totals { started, ..Totals::default() };
    rig.gate.on_peers(t(10_000), vec![peer(2, t(10_000), 100, 5, totals(100))]);
    let _ = rig.gate.feedback(t(10_000));
    rig.steer(t(10_100));
    // Worker 2 went from 100 to 107; worker 3 is new, its past is unknown.
    let peers =
        vec![peer(2, t(10_400), 107, 6, totals(107)), peer(3, t(10_400), 50, 2, totals(50))];
    rig.gate.on_peers(t(10_400), peers);
    let service = rig.gate.feedback(t(10_500)).services.remove(0);
    // arrivals 1 + 7 + 0, in flight 1 + 6 + 2, started 1 + 7 + 0
    let endpoint = &service.endpoints[0];
    assert_eq!((service.arrivals, endpoint.in_flight, endpoint.totals.started), (8, 9, 8));
}

#[test]
fn a_long_pause_starts_the_counts_anew() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    let _ = rig.gate.feedback(t(10_000));
    rig.steer(t(10_100));
    // Another worker led for a while and has told these already.
    let feedback = rig.gate.feedback(t(25_001));
    assert_eq!((feedback.window, feedback.services[0].arrivals), (Span::ZERO, 0));
    let (ticket, ..) = rig.steer(t(25_100));
    rig.end(t(25_100), ticket, A, 200);
    assert_eq!(rig.gate.feedback(t(40_001)).services[0].arrivals, 1);
}

#[test]
fn arrivals_that_pass_are_counted_too() {
    let mut rig = Rig::new("");
    let _ = rig.gate.feedback(t(0));
    for _ in 0..3 {
        rig.ask(t(100));
    }
    assert_eq!(rig.gate.feedback(t(500)).services[0].arrivals, 3);
}

#[test]
fn huge_counts_of_peers_do_no_harm() {
    let mut rig = Rig::knowing("", vec![up(A), up(B)]);
    let huge = Totals { started: u64::MAX, ttft_ms_sum: u64::MAX, ..Totals::default() };
    let peers = (2..6).map(|w| peer(w, t(10_000), u64::MAX, u32::MAX, huge)).collect();
    rig.gate.on_peers(t(10_000), peers);
    let _ = rig.gate.feedback(t(10_000));
    rig.gate.on_tick(t(10_050));
    rig.steer(t(10_050));
    let peers = (2..6).map(|w| peer(w, t(10_100), 0, 0, Totals::default())).collect();
    rig.gate.on_peers(t(10_100), peers);
    rig.gate.on_tick(t(10_100));
    assert_eq!(rig.steer(t(10_100)).1.len(), 2);
    let feedback = rig.gate.feedback(t(10_500));
    assert_eq!(feedback.services[0].arrivals, 2);
}

#[test]
fn arrivals_of_other_workers_count_from_when_they_are_first_seen() {
    let rate = |rig: &Rig| rig.gate.services[0].own_rate();
    let mut rig = Rig::knowing("", vec![up(A)]);
    rig.gate.on_tick(t(10_000));
    // Worker 2 has a long past; worker 3 starts again with a count of its own.
    for (at, second, third) in [(10_050, 1_000_000, 0), (10_100, 1_000_010, 5), (10_150, 5, 9)] {
        let peers = vec![
            peer(2, t(at), second, 0, Totals::default()),
            peer(3, t(at), third, 0, Totals::default()),
        ];
        rig.gate.on_peers(t(at), peers);
        rig.gate.on_tick(t(at));
    }
    // 0, then 10 + 5, then 0 + 4 arrivals over a time constant of 5 s: about 19 / 5
    assert!((rate(&rig) - 3.8).abs() < 0.1, "{}", rate(&rig));
}
