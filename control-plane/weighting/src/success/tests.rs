use super::*;

fn feedback(ok_total: u64, broken_total: u64) -> EndpointFeedback {
    EndpointFeedback { ok_total, broken_total, ..EndpointFeedback::default() }
}

fn rate(success: Success) -> Option<u16> {
    success.rate().map(BasisPoints::get)
}

#[test]
fn success_is_unknown_before_the_first_outcome() {
    let mut success = Success::default();
    success.observe(Some(&feedback(0, 0)), Span::secs(1));
    success.observe(None, Span::secs(1));
    assert_eq!(rate(success), None);
}

#[test]
fn each_outcome_moves_success_by_a_tenth() {
    let mut success = Success::default();
    let check = |success: &mut Success, ok, broken, expected| {
        success.observe(Some(&feedback(ok, broken)), Span::ms(500));
        assert_eq!(rate(*success), Some(expected));
    };
    check(&mut success, 1, 0, 10_000);
    check(&mut success, 1, 1, 9_000); // 1 − 0.1
    check(&mut success, 1, 2, 8_100); // 0.9·0.9
    check(&mut success, 2, 2, 8_290); // 0.81 + 0.1·0.19
    check(&mut success, 2, 1_002, 1_000); // never below 0.1
}

#[test]
fn success_recovers_without_traffic() {
    let mut success = Success::default();
    success.observe(Some(&feedback(0, 5)), Span::ms(500)); // 0.9^5 = 0.59049
    success.observe(Some(&feedback(0, 5)), Span::secs(10)); // + 0.02·10
    assert_eq!(rate(success), Some(7_905));
    success.observe(None, Span::secs(3_600));
    assert_eq!(rate(success), Some(10_000));
}

#[test]
fn what_silence_healed_counts_once_a_success_confirms_it() {
    let mut success = Success::default();
    success.observe(Some(&feedback(0, 100)), Span::ms(500)); // the least, 0.1
    success.observe(Some(&feedback(0, 100)), Span::secs(20)); // + 0.02·20
    assert_eq!(rate(success), Some(5_000));
    success.observe(Some(&feedback(0, 101)), Span::ms(500)); // taken back
    assert_eq!(rate(success), Some(1_000));
    success.observe(Some(&feedback(0, 101)), Span::secs(20));
    success.observe(Some(&feedback(1, 101)), Span::ms(500)); // 0.5 + 0.1·0.5
    assert_eq!(rate(success), Some(5_500));
}

#[test]
fn busy_and_cancelled_are_nobodys_failure() {
    let mut success = Success::default();
    let busy = EndpointFeedback { busy_total: 50, cancelled_total: 50, ..feedback(1, 0) };
    assert_eq!(success.observe(Some(&busy), Span::ms(500)), 1);
    assert_eq!(rate(success), Some(10_000));
}

#[test]
fn counters_that_go_back_start_over() {
    let mut success = Success::default();
    assert_eq!(success.observe(Some(&feedback(100, 0)), Span::ms(500)), 100);
    assert_eq!(success.observe(Some(&feedback(3, 0)), Span::ms(500)), 0);
    assert_eq!(success.observe(Some(&feedback(5, 0)), Span::ms(500)), 2);
    let huge = feedback(u64::MAX, u64::MAX);
    success.observe(Some(&huge), Span::ms(500));
    assert_eq!(rate(success), Some(5_000));
}

#[test]
fn arrivals_are_an_average_over_five_seconds() {
    let mut arrivals = Arrivals::default();
    assert_eq!(arrivals.observe(Time::ms(0), Some(7)), None);
    assert_eq!(arrivals.observe(Time::ms(1_000), Some(17)), Some(10.0));
    assert_eq!(arrivals.observe(Time::ms(1_000), Some(17)), Some(10.0), "no time, no change");
    // Silence for 5 s: 10·e^-1.
    let rate = arrivals.observe(Time::ms(6_000), Some(17)).unwrap();
    assert!((rate - 3.678_794).abs() < 1e-5);
    assert_eq!(arrivals.observe(Time::ms(7_000), None), None);
    assert_eq!(arrivals.observe(Time::ms(8_000), Some(99)), None, "starts over");
}

#[test]
fn a_rise_of_arrivals_is_seen_within_a_second_and_a_fall_within_five() {
    let mut arrivals = Arrivals::default();
    arrivals.observe(Time::ms(0), Some(0));
    arrivals.observe(Time::ms(1_000), Some(10));
    // 10/s to 110/s for a second: 10 + 100·(1 − e^-1) = 73.2 by the quick one, 28.1 by the slow one.
    let risen = arrivals.observe(Time::ms(2_000), Some(120)).unwrap();
    assert!((risen - 73.212_056).abs() < 1e-5);
    assert!((arrivals.mean().unwrap() - 28.126_925).abs() < 1e-5);
    // Nothing for 5 s: the slow one leads, 28.1·e^-1.
    let fallen = arrivals.observe(Time::ms(7_000), Some(120)).unwrap();
    assert!((fallen - 10.347_317).abs() < 1e-5);
}

#[test]
fn arrivals_of_no_time_wait_for_the_next_step() {
    let mut arrivals = Arrivals::default();
    arrivals.observe(Time::ms(0), Some(0));
    arrivals.observe(Time::ms(0), Some(10));
    assert_eq!(arrivals.observe(Time::ms(1_000), Some(20)), Some(20.0));
}

#[test]
fn waiting_alone_is_no_in_flight() {
    let engine = |running, waiting| Some(Engine { running, waiting, ..Engine::default() });
    let proxies = EndpointFeedback { in_flight: Some(4), ..EndpointFeedback::default() };
    let check = |e, f, expected| assert_eq!(in_flight(e, f), expected);
    check(engine(Some(2), Some(3)), Some(&proxies), Some(5));
    check(engine(Some(2), None), Some(&proxies), Some(2));
    check(engine(None, Some(3)), Some(&proxies), Some(4));
    check(None, Some(&proxies), Some(4));
    check(None, None, None);
    check(engine(Some(0), Some(0)), Some(&proxies), Some(0));
    check(engine(Some(u32::MAX), Some(9)), None, Some(u32::MAX));
}

fn engine(slots: Option<u32>, running: u32, waiting: u32) -> Option<Engine> {
    Some(Engine { slots, running: Some(running), waiting: Some(waiting), ..Engine::default() })
}

#[test]
fn slots_are_the_servers_word_until_the_queue_says_otherwise() {
    let mut slots = Slots::default();
    assert_eq!(slots.observe(engine(Some(256), 10, 0), Span::ms(500)), Some(256));
    // 16 run while others wait, for one τ: 16 + 240·e^-1 = 104.3.
    assert_eq!(slots.observe(engine(Some(256), 16, 4), Span::secs(60)), Some(104));
    assert_eq!(slots.observe(engine(Some(256), 16, 4), Span::secs(600)), Some(16));
    assert_eq!(slots.observe(engine(Some(256), 40, 0), Span::ms(500)), Some(40), "proof of more");
}

#[test]
fn slots_can_be_learned_and_are_unknown_before() {
    let mut slots = Slots::default();
    assert_eq!(slots.observe(None, Span::secs(1)), None);
    assert_eq!(slots.observe(engine(None, 5, 0), Span::secs(1)), None);
    assert_eq!(slots.observe(engine(None, 5, 1), Span::secs(1)), Some(5));
    assert_eq!(slots.observe(engine(Some(0), 5, 1), Span::secs(1)), Some(5), "0 is no answer");
    assert_eq!(Slots::default().observe(engine(None, 0, 3), Span::secs(1)), None);
}

#[test]
fn service_time_is_in_flight_by_arrivals() {
    let mut time = ServiceTime::default();
    let mut check = |n, rate, expected: Option<u64>| {
        assert_eq!(time.observe(n, rate, Span::ms(500)), expected.map(Span::ms));
    };
    check(Some(20), Some(4.0), Some(5_000)); // 20/4 s
    check(Some(20), None, None);
    check(Some(20), Some(0.049), None);
    check(Some(20), Some(0.05), Some(400_000));
    check(None, Some(4.0), None);
    check(Some(0), Some(4.0), None);
    check(Some(u64::MAX), Some(f64::MIN_POSITIVE), None);
    check(Some(u64::MAX), Some(1.0), Some(3_600_000));
}
