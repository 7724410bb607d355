use proptest::prelude::*;
use tidegate_policy::units::{Span, Time};
use tidegate_weighting::input::{DriverStatus, GpuSample};

use super::*;

fn stream(id: u64) -> Stream {
    Stream { id: StreamId(id), stop: CancellationToken::new() }
}

fn limits() -> Limits {
    Limits::defaults().unwrap()
}

/// A report whose content tells which one it is.
fn offer(node: &str, boot: u64, sequence: u64) -> Offer {
    let boot_id = format!("boot-{boot}");
    let report = NodeReport {
        node: node.into(),
        boot_id: boot_id.clone(),
        driver: DriverStatus::Ok,
        interval: Span::ms((boot * 1_000).saturating_add(sequence)),
        ..NodeReport::default()
    };
    Offer { node: node.into(), boot_id, sequence, report, ..Offer::default() }
}

fn held(store: &Store) -> (String, u64, u64) {
    let (_, _, entry) = store.entries().next().unwrap();
    (entry.boot_id.clone(), entry.sequence, entry.report.interval.as_ms())
}

#[test]
fn older_equal_and_repeated_reports_change_nothing() {
    let now = Instant::now();
    let s = stream(1);
    let mut store = Store::new(&limits());
    for (sequence, expected) in [
        (5, Ok(Accepted::Event)),
        (5, Err(Refusal::Sequence { stored: 5 })),
        (4, Err(Refusal::Sequence { stored: 5 })),
        (0, Err(Refusal::Sequence { stored: 5 })),
        (6, Ok(Accepted::Usual)),
        (u64::MAX, Ok(Accepted::Usual)),
        (u64::MAX, Err(Refusal::Sequence { stored: u64::MAX })),
    ] {
        assert_eq!(store.offer(now, &s, offer("n", 1, sequence)), expected, "{sequence}");
    }
    let (_, _, entry) = store.entries().next().unwrap();
    assert_eq!((entry.accepted, entry.refused), (3, 4));
}

#[test]
fn replaced_boot_never_comes_back() {
    let now = Instant::now();
    let mut store = Store::new(&limits());
    store.offer(now, &stream(1), offer("n", 1, 900)).unwrap();
    store.offer(now, &stream(2), offer("n", 2, 1)).unwrap();
    assert_eq!(store.offer(now, &stream(3), offer("n", 1, 901)), Err(Refusal::RetiredBoot));
    assert_eq!(held(&store), ("boot-2".into(), 1, 2_001));
}

#[test]
fn boot_changes_only_with_a_new_stream() {
    let now = Instant::now();
    let s = stream(1);
    let mut store = Store::new(&limits());
    store.offer(now, &s, offer("n", 1, 1)).unwrap();
    assert_eq!(store.offer(now, &s, offer("n", 2, 1)), Err(Refusal::BootChanged));
    assert!(store.offer(now, &stream(2), offer("n", 2, 1)).is_ok());
}

#[test]
fn newer_stream_of_a_reporter_ends_the_older() {
    let now = Instant::now();
    let (old, new) = (stream(1), stream(2));
    let mut store = Store::new(&limits());
    store.offer(now, &old, offer("n", 1, 1)).unwrap();
    store.offer(now, &old, offer("n", 1, 2)).unwrap();
    assert!(!old.stop.is_cancelled());
    store.offer(now, &new, offer("n", 1, 3)).unwrap();
    assert!(old.stop.is_cancelled());
    assert!(!new.stop.is_cancelled());
    // The end of the old stream does not disconnect the new one.
    store.close(old.id);
    assert_eq!(store.entries().filter(|(_, _, e)| e.stream.is_some()).count(), 1);
    store.close(new.id);
    assert_eq!(store.entries().filter(|(_, _, e)| e.stream.is_some()).count(), 0);
}

#[test]
fn replay_does_not_take_a_stream_over() {
    let now = Instant::now();
    let (live, attacker) = (stream(1), stream(2));
    let mut store = Store::new(&limits());
    store.offer(now, &live, offer("n", 1, 7)).unwrap();
    assert!(store.offer(now, &attacker, offer("n", 1, 7)).is_err());
    assert!(!live.stop.is_cancelled());
}

#[test]
fn nodes_and_parts_are_taken_at_the_limit_and_refused_above() {
    let now = Instant::now();
    let limits = Limits { nodes: 2, parts_per_node: 2, ..limits() };
    let mut store = Store::new(&limits);
    let part = |node: &str, part: &str| Offer { part: part.into(), ..offer(node, 1, 1) };
    assert!(store.offer(now, &stream(1), part("a", "0")).is_ok());
    assert!(store.offer(now, &stream(2), part("a", "1")).is_ok());
    assert_eq!(store.offer(now, &stream(3), part("a", "2")), Err(Refusal::Parts { max: 2 }));
    assert!(store.offer(now, &stream(4), part("b", "")).is_ok());
    assert_eq!(store.offer(now, &stream(5), part("c", "")), Err(Refusal::Nodes { max: 2 }));
    // A known node goes on.
    assert!(store.offer(now, &stream(4), Offer { sequence: 2, ..part("b", "") }).is_ok());
}

#[test]
fn silent_node_is_forgotten_at_the_expiry_and_not_before() {
    let now = Instant::now();
    let expiry = Duration::from_secs(600);
    let mut store = Store::new(&limits());
    store.offer(now, &stream(1), offer("n", 1, 1)).unwrap();
    store.expire(now + expiry - Duration::from_millis(1), expiry);
    assert_eq!(store.entries().count(), 1);
    store.expire(now + expiry, expiry);
    assert_eq!(store.entries().count(), 0);
}

/// A report of one part of node `n`, with one GPU.
fn part(name: &str, boot: u64, received_ms: u64, gpu: &str) -> Offer {
    let mut offer = offer("n", boot, received_ms);
    offer.part = name.into();
    offer.report.received = Time::ms(received_ms);
    offer.report.interval = Span::ms(500);
    offer.report.gpus = vec![GpuSample { uuid: gpu.into(), ..GpuSample::default() }];
    offer
}

#[test]
fn parts_of_a_node_keep_their_own_boot_and_time() {
    let now = Instant::now();
    let mut store = Store::new(&limits());
    store.offer(now, &stream(1), part("0", 1, 1_000, "GPU-0")).unwrap();
    store.offer(now, &stream(2), part("1", 2, 1_500, "GPU-1")).unwrap();
    // Part 1 restarts; part 0 says nothing more.
    store.offer(now, &stream(3), part("1", 3, 9_000, "GPU-1")).unwrap();
    let mut seen: Vec<(String, String, u64)> = store
        .reports()
        .into_iter()
        .map(|r| (r.gpus[0].uuid.clone(), r.boot_id, r.received.as_ms()))
        .collect();
    seen.sort();
    let expected = [("GPU-0", "boot-1", 1_000), ("GPU-1", "boot-3", 9_000)];
    assert_eq!(seen, expected.map(|(gpu, boot, ms)| (gpu.into(), boot.into(), ms)));
}

#[test]
fn gpu_that_two_parts_list_is_one_parts_alone_until_it_is_late() {
    let now = Instant::now();
    let mut store = Store::new(&limits());
    let boot = |store: &Store| {
        let reports = store.reports();
        let mut with = reports.iter().filter(|r| !r.gpus.is_empty());
        let boot = with.next().map(|r| r.boot_id.clone());
        assert!(with.next().is_none(), "one report has the GPU");
        boot.unwrap()
    };
    store.offer(now, &stream(1), part("", 1, 1_000, "GPU-0")).unwrap();
    // Three periods of 500 ms are in time; one millisecond more is late.
    for (received_ms, expected) in [(1_100, "boot-1"), (2_500, "boot-1"), (2_501, "boot-2")] {
        store.offer(now, &stream(2), part("0", 2, received_ms, "GPU-0")).unwrap();
        assert_eq!(boot(&store), expected, "{received_ms}");
    }
}

#[test]
fn restarted_reporter_that_has_seen_nothing_keeps_what_was_said() {
    let now = Instant::now();
    let mut store = Store::new(&limits());
    let nothing = |boot, sequence| {
        let mut offer = offer("n", boot, sequence);
        offer.report.driver = DriverStatus::Unknown;
        offer
    };
    assert!(store.offer(now, &stream(1), nothing(1, 1)).is_ok());
    assert!(store.reports().is_empty(), "nothing is known yet");
    assert_eq!(store.offer(now, &stream(1), offer("n", 1, 2)), Ok(Accepted::Event));
    assert_eq!(store.offer(now, &stream(2), nothing(2, 1)), Ok(Accepted::Usual));
    assert_eq!(held(&store), ("boot-2".into(), 1, 1_002), "the boot is new, the data is not");
    assert_eq!(store.offer(now, &stream(2), offer("n", 2, 2)), Ok(Accepted::Usual));
    assert_eq!(held(&store), ("boot-2".into(), 2, 2_002));
    // A driver that is gone is news.
    let mut gone = offer("n", 2, 3);
    gone.report.driver = DriverStatus::Absent;
    assert_eq!(store.offer(now, &stream(2), gone), Ok(Accepted::Event));
}

#[test]
fn one_node_sends_at_most_at_its_rate() {
    let now = Instant::now();
    let limits = Limits { reports_per_second: 2, reports_burst: 3, ..limits() };
    let mut store = Store::new(&limits);
    assert!(store.may_send(now, "n", ""), "unknown nodes may");
    store.offer(now, &stream(1), offer("n", 1, 1)).unwrap();
    // The first report took one of three.
    let sent: Vec<bool> = (0..3).map(|_| store.may_send(now, "n", "")).collect();
    assert_eq!(sent, [true, true, false]);
    assert!(store.may_send(now, "other", ""));
    assert!(store.may_send(now + Duration::from_millis(501), "n", ""));
}

proptest! {
    /// Whatever the order, with repeats: what is held is the highest sequence of the newest boot.
    #[test]
    fn state_is_the_newest_report_in_any_order(
        boots in proptest::collection::vec(
            proptest::collection::vec(0_u64..20, 1..12), 1..5,
        ),
        replays in proptest::collection::vec((0_usize..5, 0_u64..20), 0..20),
    ) {
        let now = Instant::now();
        let mut store = Store::new(&limits());
        let mut sent: Vec<(u64, u64)> = Vec::new();
        for (boot, sequences) in boots.iter().enumerate() {
            let boot = u64::try_from(boot).unwrap();
            let s = stream(boot);
            for sequence in sequences {
                let _ = store.offer(now, &s, offer("n", boot, *sequence));
                sent.push((boot, *sequence));
            }
        }
        let newest = u64::try_from(boots.len() - 1).unwrap();
        let highest = *boots.last().unwrap().iter().max().unwrap();
        let expected = (format!("boot-{newest}"), highest, newest * 1_000 + highest);
        prop_assert_eq!(held(&store), expected.clone());
        // Replays of anything that was ever sent change no field, on whatever stream they come.
        for (at, stream_id) in replays {
            let (boot, sequence) = sent[at % sent.len()];
            let replayed = store.offer(now, &stream(100 + stream_id), offer("n", boot, sequence));
            prop_assert!(replayed.is_err());
            prop_assert_eq!(held(&store), expected.clone());
        }
    }
}
