//! How ends are charged, and that lost, doubled and late ends do no harm.

use super::*;

fn served(address: &str, attempts: u32) -> ServedFacts<'_> {
    ServedFacts { served: Some(address), attempts }
}

/// A steered request with list A, B, C in that order: loads 0, 1 and 2 of one slot-aware pour.
fn with_list_abc() -> (Rig, Ticket) {
    let with = |address, n| EndpointUpdate { in_flight: Some(n), ..up(address) };
    let mut rig = Rig::knowing("", vec![with(A, 0), with(B, 3), with(C, 6)]);
    let (ticket, list, _) = rig.steer(t(10_000));
    assert_eq!(list, [A, B, C]);
    (rig, ticket)
}

fn broken(rig: &Rig) -> [u64; 3] {
    [A, B, C].map(|a| rig.totals(a).ended_broken)
}

fn started(rig: &Rig) -> [u64; 3] {
    [A, B, C].map(|a| rig.totals(a).started)
}

#[test]
fn a_first_try_that_answers_is_charged_once() {
    let (mut rig, ticket) = with_list_abc();
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [1, 0, 0]);
    rig.gate.on_response_headers(t(10_250), &ticket, &served(A, 1));
    assert_eq!(rig.in_flight(A), 1);
    let outcome = rig.gate.on_end(t(12_000), ticket, &served(A, 1), &answered(200));
    assert_eq!(outcome, Outcome::Ok);
    let expected =
        Totals { started: 1, ended_ok: 1, ttft_ms_sum: 250, ttft_count: 1, ..Totals::default() };
    assert_eq!((rig.in_flight(A), rig.totals(A)), (0, expected));
    assert_eq!(started(&rig), [1, 0, 0]);
}

#[test]
fn the_first_byte_moves_the_time_to_first_token() {
    let (mut rig, ticket) = with_list_abc();
    // Before the headers a first byte says nothing.
    rig.gate.on_first_byte(t(10_050), &ticket);
    rig.gate.on_response_headers(t(10_100), &ticket, &served(A, 1));
    rig.gate.on_first_byte(t(10_400), &ticket);
    rig.gate.on_end(t(12_000), ticket, &ServedFacts::default(), &answered(200));
    assert_eq!((rig.totals(A).ttft_ms_sum, rig.totals(A).ttft_count), (400, 1));
}

#[test]
fn a_retry_moves_the_request_and_charges_the_failed_try() {
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_response_headers(t(10_100), &ticket, &served(B, 2));
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [0, 1, 0]);
    assert_eq!(broken(&rig), [1, 0, 0]);
    rig.gate.on_end(t(11_000), ticket, &served(B, 2), &answered(200));
    assert_eq!((rig.totals(B).ended_ok, rig.in_flight(B)), (1, 0));
    assert_eq!(started(&rig), [1, 1, 0]);
}

#[test]
fn two_failed_tries_are_charged_to_their_entries() {
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_end(t(11_000), ticket, &served(C, 3), &answered(502));
    assert_eq!(broken(&rig), [1, 1, 1]);
    assert_eq!(started(&rig), [1, 1, 1]);
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [0, 0, 0]);
}

#[test]
fn a_skipped_host_leaves_earlier_tries_uncharged() {
    // Two tries, but the second one was C, not B: which one was the first is unknown.
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_end(t(11_000), ticket, &served(C, 2), &answered(200));
    assert_eq!(broken(&rig), [0, 0, 0]);
    assert_eq!((rig.totals(A).ended_cancelled, rig.totals(C).ended_ok), (1, 1));
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [0, 0, 0]);
}

#[test]
fn more_tries_than_entries_charge_the_served_one_alone() {
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_end(t(11_000), ticket, &served(B, u32::MAX), &answered(500));
    assert_eq!(broken(&rig), [0, 1, 0]);
}

#[test]
fn an_unknown_number_of_tries_trusts_the_served_host() {
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_end(t(11_000), ticket, &served(A, 0), &answered(200));
    assert_eq!((rig.totals(A).ended_ok, broken(&rig)), (1, [0, 0, 0]));
}

#[test]
fn a_host_that_nobody_knows_is_charged_to_nobody() {
    for unknown in ["10.9.9.9:80", "not an address", ""] {
        let (mut rig, ticket) = with_list_abc();
        rig.gate.on_end(t(11_000), ticket, &served(unknown, 1), &answered(500));
        assert_eq!(broken(&rig), [0, 0, 0]);
        assert_eq!((rig.in_flight(A), rig.totals(A).ended_cancelled), (0, 1));
    }
}

#[test]
fn another_spelling_of_an_address_is_the_same_endpoint() {
    let mut rig = Rig::knowing("", vec![up("[2001:db8::1]:80")]);
    let (ticket, list, _) = rig.steer(t(10_000));
    assert_eq!(list, ["[2001:db8::1]:80"]);
    rig.end(t(10_100), ticket, "[2001:DB8:0::1]:80", 200);
    assert_eq!(rig.totals("[2001:db8::1]:80").ended_ok, 1);
}

#[test]
fn no_word_on_the_host_charges_the_plan() {
    let (mut rig, ticket) = with_list_abc();
    let facts = ServedFacts { served: None, attempts: 2 };
    let seen = Seen { flags: Flags::UPSTREAM_CONNECTION_FAILURE, ..answered(503) };
    assert_eq!(rig.gate.on_end(t(11_000), ticket, &facts, &seen), Outcome::Broken);
    assert_eq!(broken(&rig), [1, 1, 0]);
}

#[test]
fn a_cancelled_request_leaves_no_mark_on_success() {
    let (mut rig, ticket) = with_list_abc();
    let gone = Seen { flags: Flags::DOWNSTREAM_REMOTE_RESET, ..Seen::default() };
    let outcome = rig.gate.on_end(t(11_000), ticket, &ServedFacts::default(), &gone);
    assert_eq!(outcome, Outcome::Cancelled);
    assert_eq!((rig.in_flight(A), rig.totals(A).ended_cancelled), (0, 1));
}

#[test]
fn a_ticket_counts_once() {
    let (mut rig, ticket) = with_list_abc();
    for _ in 0..3 {
        rig.gate.on_end(t(11_000), ticket, &served(A, 1), &answered(200));
        rig.gate.on_response_headers(t(11_000), &ticket, &served(B, 2));
    }
    assert_eq!(rig.totals(A).ended_ok, 1);
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [0, 0, 0]);
}

#[test]
fn requests_without_an_end_are_forgotten_after_their_age() {
    let (mut rig, ticket) = with_list_abc();
    let limit = 10_000 + OPEN_AGE_MAX.as_ms();
    rig.gate.on_tick(t(limit));
    assert_eq!((rig.gate.open_requests(), rig.in_flight(A)), (1, 1));
    rig.gate.on_tick(t(limit + 1));
    assert_eq!((rig.gate.open_requests(), rig.in_flight(A)), (0, 0));
    rig.gate.on_end(t(limit + 2), ticket, &served(A, 1), &answered(200));
    assert_eq!((rig.in_flight(A), rig.totals(A).ended_ok), (0, 0));
}

#[test]
fn open_requests_at_the_limit_and_one_over() {
    let mut rig = Rig::knowing("", vec![up(A)]);
    for _ in 0..OPEN_MAX {
        rig.steer(t(10_000));
    }
    assert_eq!(rig.in_flight(A), 65_536);
    rig.steer(t(10_000));
    assert_eq!((rig.gate.open_requests(), rig.in_flight(A)), (OPEN_MAX, 65_536));
    assert_eq!(rig.totals(A).ended_cancelled, 1);
}

#[test]
fn a_clock_that_steps_back_breaks_nothing() {
    let (mut rig, ticket) = with_list_abc();
    rig.gate.on_tick(t(500));
    let (other, ..) = rig.steer(t(400));
    rig.gate.on_response_headers(t(300), &ticket, &served(A, 1));
    rig.gate.on_end(t(200), ticket, &served(A, 1), &answered(200));
    rig.end(t(0), other, B, 500);
    assert_eq!([A, B, C].map(|a| rig.in_flight(a)), [0, 0, 0]);
    assert_eq!(rig.totals(A).ttft_ms_sum, 0);
}
