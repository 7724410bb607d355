use super::*;
use crate::discovery::{EndpointEntry, ServiceEntry};

const EXPIRY: Duration = Duration::from_secs(10);

fn directory(services: &[(&str, &[&str])]) -> Directory {
    let endpoint =
        |address: &&str| EndpointEntry { address: (*address).into(), ..Default::default() };
    let services = services.iter().map(|(name, addresses)| ServiceEntry {
        name: (*name).into(),
        endpoints: addresses.iter().map(endpoint).collect(),
    });
    Directory { services: services.collect() }
}

fn stream(id: u64) -> Stream {
    Stream { id: StreamId(id), stop: CancellationToken::new() }
}

fn hello(proxy_id: &str, services: &[&str]) -> Hello {
    let services = services.iter().map(|s| (*s).into()).collect();
    Hello { proxy_id: proxy_id.into(), services, ..Hello::default() }
}

fn feedback(sequence: u64, counts: &[(&str, u32, u64)]) -> Feedback {
    let endpoints = counts.iter().map(|(endpoint, in_flight, ok)| EndpointCounts {
        endpoint: (*endpoint).into(),
        in_flight: *in_flight,
        ok: *ok,
        ..EndpointCounts::default()
    });
    let service =
        ServiceCounts { service: "llm".into(), arrivals: 10, endpoints: endpoints.collect() };
    Feedback { sequence, services: vec![service], ..Feedback::default() }
}

/// Two proxies at one service with endpoints `a` and `b`.
fn two(now: Instant) -> Proxies {
    let mut proxies = Proxies::default();
    proxies.direct(&directory(&[("llm", &["a", "b"])]));
    proxies.open(now, &stream(1), hello("p1", &[]));
    proxies.open(now, &stream(2), hello("p2", &["llm"]));
    proxies
}

fn in_flight(proxies: &Proxies, now: Instant) -> Vec<Option<u32>> {
    proxies.endpoint_sums(now, EXPIRY).iter().map(|e| e.in_flight).collect()
}

#[test]
fn in_flight_adds_up_and_the_newest_feedback_of_a_proxy_counts() {
    let now = Instant::now();
    let mut proxies = two(now);
    assert_eq!(in_flight(&proxies, now), [None, None], "unknown before the first feedback");
    assert!(proxies.feedback(now, StreamId(1), feedback(0, &[("a", 3, 5), ("b", 1, 0)])));
    assert!(proxies.feedback(now, StreamId(2), feedback(0, &[("a", 4, 7)])));
    assert_eq!(in_flight(&proxies, now), [Some(7), Some(1)]);
    assert!(proxies.feedback(now, StreamId(1), feedback(1, &[("a", 1, 2)])));
    // a: 1 + 4; b is not listed any more, so none of this proxy's requests are there.
    assert_eq!(in_flight(&proxies, now), [Some(5), Some(0)]);
    let sums = proxies.sums("llm", "a").unwrap();
    assert_eq!(sums.ok, 5 + 7 + 2, "outcomes add up");
    assert_eq!(proxies.service_sums()[0].arrivals_total, 30);
    assert_eq!(proxies.service_sums()[0].proxies_live, 2);
}

#[test]
fn contribution_ends_with_the_stream() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 3, 5)]));
    proxies.feedback(now, StreamId(2), feedback(1, &[("a", 4, 7)]));
    proxies.close(StreamId(1));
    assert_eq!(in_flight(&proxies, now), [Some(4), Some(0)]);
    assert_eq!(proxies.sums("llm", "a").unwrap().ok, 12, "history stays");
    proxies.close(StreamId(2));
    assert_eq!(in_flight(&proxies, now), [None, None], "nobody knows any more");
    assert!(proxies.is_empty());
}

#[test]
fn repeated_or_older_feedback_counts_nothing() {
    let now = Instant::now();
    let mut proxies = two(now);
    assert!(proxies.feedback(now, StreamId(1), feedback(5, &[("a", 3, 5)])));
    assert!(!proxies.feedback(now, StreamId(1), feedback(5, &[("a", 9, 9)])));
    assert!(!proxies.feedback(now, StreamId(1), feedback(4, &[("a", 9, 9)])));
    assert!(!proxies.feedback(now, StreamId(7), feedback(6, &[("a", 9, 9)])), "no such stream");
    let sums = proxies.sums("llm", "a").unwrap();
    assert_eq!((sums.in_flight, sums.ok), (3, 5));
}

#[test]
fn silent_proxy_stops_counting_until_it_speaks() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 3, 0)]));
    let before = now + EXPIRY - Duration::from_millis(1);
    proxies.expire(before, EXPIRY);
    assert_eq!(in_flight(&proxies, before), [Some(3), Some(0)]);
    let after = now + EXPIRY;
    proxies.expire(after, EXPIRY);
    assert_eq!(in_flight(&proxies, after), [None, None]);
    proxies.feedback(after, StreamId(1), feedback(2, &[("a", 2, 0)]));
    assert_eq!(in_flight(&proxies, after), [Some(2), Some(0)]);
}

#[test]
fn newer_stream_of_a_proxy_replaces_the_older() {
    let now = Instant::now();
    let mut proxies = two(now);
    let old = stream(3);
    proxies.open(now, &old, hello("p3", &[]));
    proxies.feedback(now, StreamId(3), feedback(1, &[("a", 6, 0)]));
    proxies.open(now, &stream(4), hello("p3", &[]));
    assert!(old.stop.is_cancelled());
    assert_eq!(proxies.len(), 3);
    proxies.feedback(now, StreamId(4), feedback(1, &[("a", 6, 0)]));
    assert_eq!(in_flight(&proxies, now), [Some(6), Some(0)], "not counted twice");
}

#[test]
fn second_hello_on_a_stream_keeps_its_counts() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 3, 0)]));
    let again = Hello { config: ConfigState::LastGood, ..hello("p1", &["llm"]) };
    proxies.open(now, &stream(1), again);
    assert_eq!(proxies.len(), 2);
    assert_eq!(in_flight(&proxies, now), [Some(3), Some(0)]);
    assert_eq!(proxies.iter().next().unwrap().hello.config, ConfigState::LastGood);
}

#[test]
fn only_endpoints_of_discovery_are_counted() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 1, 1), ("evil", 9, 9)]));
    let mut other = feedback(2, &[("a", 1, 1)]);
    other.services[0].service = "nobody".into();
    proxies.feedback(now, StreamId(1), other);
    assert!(proxies.sums("llm", "evil").is_none());
    assert!(proxies.sums("nobody", "a").is_none());
    assert_eq!(proxies.service_sums().len(), 1);
}

#[test]
fn endpoint_that_leaves_discovery_takes_its_counts_along() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 3, 1), ("b", 2, 1)]));
    proxies.direct(&directory(&[("llm", &["b"])]));
    assert_eq!(in_flight(&proxies, now), [Some(2)]);
    proxies.direct(&directory(&[("llm", &["a", "b"])]));
    assert_eq!(in_flight(&proxies, now), [Some(0), Some(2)]);
    proxies.close(StreamId(1));
    proxies.feedback(now, StreamId(2), feedback(1, &[]));
    assert_eq!(in_flight(&proxies, now), [Some(0), Some(0)], "nothing below zero, nothing left");
}

#[test]
fn endpoint_listed_twice_adds_up_and_goes_away_whole() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", 3, 0), ("a", 4, 0)]));
    assert_eq!(in_flight(&proxies, now), [Some(7), Some(0)]);
    proxies.feedback(now, StreamId(1), feedback(2, &[]));
    assert_eq!(in_flight(&proxies, now), [Some(0), Some(0)]);
}

#[test]
fn huge_counts_saturate() {
    let now = Instant::now();
    let mut proxies = two(now);
    proxies.feedback(now, StreamId(1), feedback(1, &[("a", u32::MAX, u64::MAX)]));
    proxies.feedback(now, StreamId(2), feedback(1, &[("a", u32::MAX, u64::MAX)]));
    assert_eq!(in_flight(&proxies, now), [Some(u32::MAX), Some(0)]);
    assert_eq!(proxies.sums("llm", "a").unwrap().ok, u64::MAX);
    proxies.close(StreamId(1));
    assert_eq!(in_flight(&proxies, now), [Some(u32::MAX), Some(0)]);
}

#[test]
fn proxies_live_counts_those_that_use_the_service() {
    let now = Instant::now();
    let mut proxies = Proxies::default();
    proxies.direct(&directory(&[("a", &["x"]), ("b", &["y"])]));
    proxies.open(now, &stream(1), hello("all", &[]));
    proxies.open(now, &stream(2), hello("only-a", &["a"]));
    let live: Vec<u32> = proxies.service_sums().iter().map(|s| s.proxies_live).collect();
    assert_eq!(live, [2, 1]);
}
