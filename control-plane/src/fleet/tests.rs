use std::time::Duration;

use super::*;
use crate::{metrics::Cause, testing};

type Updates = mpsc::Receiver<Result<FleetUpdate, Status>>;

/// A push of everything in the background, and the reader's end.
fn pushing(core: &Arc<Core>) -> (tokio::task::JoinHandle<StreamEnd>, Updates) {
    let (updates, taken) = mpsc::channel(1);
    let (interest, interests) = watch::channel(Some(Interest::default()));
    let core = Arc::clone(core);
    let task = tokio::spawn(async move {
        let end = push(&core, interests, &updates).await;
        drop(interest);
        end
    });
    (task, taken)
}

async fn next(taken: &mut Updates) -> FleetUpdate {
    taken.recv().await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn first_update_is_full_and_then_come_changes() {
    let core = testing::core("", &["1.1.1.1:1"]);
    core.step(Cause::Period);
    let (_task, mut taken) = pushing(&core);
    let first = next(&mut taken).await;
    assert_eq!((first.full, first.epoch), (true, 1));
    assert_eq!(first.services[0].endpoints.len(), 1);
    core.step(Cause::Period);
    let second = next(&mut taken).await;
    assert_eq!((second.full, second.epoch, second.instance), (false, 2, first.instance));
    assert!(second.services.iter().all(|s| s.endpoints.is_empty()), "nothing changed");
}

#[tokio::test(start_paused = true)]
async fn everything_is_sent_again_after_the_full_update_time() {
    let core = testing::core("timeouts: {full_update_ms: 30000}", &["1.1.1.1:1"]);
    core.step(Cause::Period);
    let (_task, mut taken) = pushing(&core);
    assert!(next(&mut taken).await.full);
    for (ms, full) in [(29_999, false), (1, true), (15_000, false), (15_000, true)] {
        tokio::time::advance(Duration::from_millis(ms)).await;
        core.step(Cause::Period);
        assert_eq!(next(&mut taken).await.full, full, "after {ms} more");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_the_newest_and_nothing_queues() {
    let core = testing::core("", &["1.1.1.1:1"]);
    core.step(Cause::Period);
    let (_task, mut taken) = pushing(&core);
    // Let the push fill the one place.
    tokio::task::yield_now().await;
    for step in 0..50_u8 {
        testing::direct(&core, &["1.1.1.1:1", &format!("1.1.1.2:{}", 100 + u16::from(step))]);
        core.step(Cause::Period);
        tokio::task::yield_now().await;
        assert!(taken.len() <= 1, "one place");
    }
    let first = next(&mut taken).await;
    assert_eq!(first.epoch, 1, "what was in the place already");
    let second = next(&mut taken).await;
    assert_eq!(second.epoch, 51, "then the newest");
    let addresses: Vec<&str> =
        second.services[0].endpoints.iter().map(|e| e.address.as_str()).collect();
    assert!(addresses.contains(&"1.1.1.2:149"), "{addresses:?}");
    assert!(!addresses.contains(&"1.1.1.2:148"), "{addresses:?}");
}

#[tokio::test(start_paused = true)]
async fn reader_that_takes_nothing_is_dropped_at_the_time_and_not_before() {
    let core = testing::core("timeouts: {slow_reader_ms: 30000}", &["1.1.1.1:1"]);
    core.step(Cause::Period);
    let (task, taken) = pushing(&core);
    tokio::task::yield_now().await;
    core.step(Cause::Period);
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_millis(29_990)).await;
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    tokio::time::advance(Duration::from_millis(20)).await;
    assert_eq!(task.await.unwrap(), StreamEnd::SlowReader);
    drop(taken);
}

#[tokio::test(start_paused = true)]
async fn reader_that_is_gone_ends_the_push() {
    let core = testing::core("", &["1.1.1.1:1"]);
    core.step(Cause::Period);
    let (task, taken) = pushing(&core);
    drop(taken);
    core.step(Cause::Period);
    assert_eq!(task.await.unwrap(), StreamEnd::Client);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_hello_or_before_the_first_step() {
    let core = testing::core("", &["1.1.1.1:1"]);
    let (updates, mut taken) = mpsc::channel(1);
    let (interest, interests) = watch::channel(None);
    let pushed = Arc::clone(&core);
    tokio::spawn(async move { push(&pushed, interests, &updates).await });
    core.step(Cause::Period);
    tokio::task::yield_now().await;
    assert!(taken.is_empty(), "no hello yet");
    interest.send_replace(Some(Interest(["nobody".to_owned()].into())));
    let update = next(&mut taken).await;
    assert!(update.full && update.services.is_empty(), "only what it asked for");
    interest.send_replace(Some(Interest(["llm".to_owned()].into())));
    let update = next_after(&core, &mut taken).await;
    assert!(update.full, "other services, so everything anew");
    assert_eq!(update.services[0].name, "llm");
}

async fn next_after(core: &Core, taken: &mut Updates) -> FleetUpdate {
    tokio::task::yield_now().await;
    core.step(Cause::Period);
    next(taken).await
}

#[tokio::test(start_paused = true)]
async fn publisher_steps_each_period_and_at_once_after_an_event() {
    let core = testing::core("period_ms: 1000", &["1.1.1.1:1"]);
    let publisher = tokio::spawn(crate::publisher::run(Arc::clone(&core)));
    let epoch = || core.snapshot().map_or(0, |s| s.epoch);
    settle().await;
    let start = epoch();
    tokio::time::advance(Duration::from_millis(500)).await;
    settle().await;
    assert_eq!(epoch(), start, "nothing happened");
    core.events.notify_one();
    settle().await;
    assert_eq!(epoch(), start + 1, "an event is told at once");
    tokio::time::advance(Duration::from_millis(500)).await;
    settle().await;
    assert_eq!(epoch(), start + 2, "the period stays where it was");
    core.stop.cancel();
    publisher.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_is_told_soon_but_steps_keep_their_distance() {
    let core = testing::core("period_ms: 1000", &["1.1.1.1:1"]);
    tokio::spawn(crate::publisher::run(Arc::clone(&core)));
    settle().await;
    let start = core.snapshot().map_or(0, |s| s.epoch);
    let pass = async |ms| {
        tokio::time::advance(Duration::from_millis(ms)).await;
        settle().await;
        core.snapshot().map_or(0, |s| s.epoch) - start
    };
    assert_eq!(pass(450).await, 0);
    core.reports.notify_one();
    settle().await;
    // 19 ms for reports of other nodes, then at once, since the step before is over 400 ms ago.
    assert_eq!(pass(19).await, 0);
    assert_eq!(pass(2).await, 1);
    // At 471 ms; the next report waits until 871 ms.
    core.reports.notify_one();
    settle().await;
    assert_eq!(pass(398).await, 1);
    assert_eq!(pass(3).await, 2);
    // Without more of them the period counts from 872 ms on.
    assert_eq!(pass(990).await, 2);
    assert_eq!(pass(11).await, 3);
}

#[tokio::test(start_paused = true)]
async fn events_between_periods_are_limited() {
    let core =
        testing::core("period_ms: 5000\nlimits: {event_pushes_per_second: 5}", &["1.1.1.1:1"]);
    tokio::spawn(crate::publisher::run(Arc::clone(&core)));
    settle().await;
    let start = core.snapshot().map_or(0, |s| s.epoch);
    // An event each 10 ms for 2 s: 5 at once, and 5 a second after them.
    for _ in 0..200 {
        core.events.notify_one();
        tokio::time::advance(Duration::from_millis(10)).await;
        settle().await;
    }
    let extra = core.snapshot().unwrap().epoch - start;
    assert!((13..=15).contains(&extra), "{extra}");
    // The last event is not lost, only late.
    tokio::time::advance(Duration::from_millis(250)).await;
    settle().await;
    assert!(core.snapshot().unwrap().epoch > start + extra);
}

/// Lets every task run until all wait.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_snapshot_waits_for_named_nodes_but_not_for_ever() {
    use crate::discovery::{Directory, DiscoveryStatus, EndpointEntry, ServiceEntry};
    let core = Core::new(testing::config("timeouts: {warm_up_ms: 3000}"));
    let endpoint = EndpointEntry {
        address: "1.1.1.1:1".into(),
        node: Some("node-a".into()),
        ..EndpointEntry::default()
    };
    let service = ServiceEntry { name: "llm".into(), endpoints: vec![endpoint] };
    let directory = Directory { services: vec![service] };
    core.discovered(&DiscoveryStatus::default(), Some(directory));
    tokio::time::advance(Duration::from_millis(2_999)).await;
    core.step(Cause::Period);
    assert!(core.snapshot().is_none());
    assert_eq!(core.not_ready(), ["waiting for the first reports"]);
    tokio::time::advance(Duration::from_millis(1)).await;
    core.step(Cause::Period);
    assert!(core.not_ready().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_directory_means_no_snapshot_and_not_ready() {
    let core = Core::new(testing::config(""));
    core.step(Cause::Period);
    assert!(core.snapshot().is_none(), "proxies keep what they have");
    assert_eq!(core.not_ready(), ["no discovery file is in force"]);
}

#[test]
fn instances_differ() {
    let drawn = [(); 8].map(|()| Core::new(testing::config("")).instance);
    let unique: std::collections::BTreeSet<u64> = drawn.into();
    assert_eq!(unique.len(), 8);
}
