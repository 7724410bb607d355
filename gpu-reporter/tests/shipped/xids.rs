//! Events leave at once, each counts, and a driver gone mad does no harm.

use std::time::{Duration, Instant};

use crate::rig::{Received, Rig, eventually, healthy};
use serde_json::json;
use tidegate_proto::v1::GpuState;

fn codes(received: &Received, uuid: &str) -> Vec<u32> {
    received.gpu(uuid).xids.iter().map(|xid| xid.code).collect()
}

async fn watching(rig: &Rig) {
    let waits = "tidegate_gpu_reporter_nvml_call_seconds_count{function=\"nvmlEventSetWait_v2\"}";
    let waiting = || async { rig.metric(waits).await.filter(|n| *n >= 1.0) };
    eventually("events are watched", waiting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn xid_79_leaves_within_half_a_second_whatever_the_period() {
    let mut rig = Rig::start("xid", healthy(4), &["--interval-ms", "5000"]).await;
    rig.until_state("GPU-3", GpuState::Ok).await;
    watching(&rig).await;
    let at = rig.change(|s| {
        s["events"].as_array_mut().unwrap().push(json!({"gpu": 2, "xid": 79}));
    });
    let received = rig.until("79", |r| codes(r, "GPU-2") == [79]).await;
    let took = received.at.duration_since(at);
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(received.gpu("GPU-2").xids[0].age_ms < 500);
    assert_eq!(codes(&received, "GPU-0"), [] as [u32; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_code_twice_is_two_events_with_their_own_ids() {
    let mut rig = Rig::start("xid-twice", healthy(1), &[]).await;
    watching(&rig).await;
    for _ in 0..2 {
        rig.change(|s| {
            s["events"].as_array_mut().unwrap().push(json!({"gpu": 0, "xid": 31}));
        });
    }
    let received = rig.until("two", |r| codes(r, "GPU-0").len() == 2).await;
    let ids: Vec<u64> = received.gpu("GPU-0").xids.iter().map(|xid| xid.event_id).collect();
    assert_eq!(ids, [2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_events_stay_bounded() {
    let mut rig = Rig::start("storm", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    watching(&rig).await;
    let before = rig.metric("tidegate_gpu_reporter_resident_bytes").await.unwrap();
    let at = rig.change(|s| {
        let storm = json!({"gpu": 0, "xid": 45, "repeat": 10_000});
        s["events"].as_array_mut().unwrap().push(storm);
    });
    let total = "tidegate_gpu_xid_events_total{uuid=\"GPU-0\",code=\"45\"}";
    let counted = || async { rig.metric(total).await.filter(|n| *n == 10_000.0) };
    eventually("all counted", counted).await;
    rig.until("sixteen", |r| codes(r, "GPU-0").len() == 16).await;
    let reports = rig.all().iter().filter(|r| r.at >= at).count();
    let seconds = usize::try_from(at.elapsed().as_secs()).unwrap() + 1;
    assert!(reports <= seconds * 12, "{reports} reports in {seconds} s");
    let grown = rig.metric("tidegate_gpu_reporter_resident_bytes").await.unwrap() - before;
    assert!(grown < 4e6, "grew by {grown} bytes");
    assert!(rig.all().iter().all(|r| r.report.gpus.iter().all(|g| g.xids.len() <= 16)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_refuses_registration_blinds_only_itself() {
    let mut scenario = healthy(3);
    scenario["gpus"][0]["event_types"] = json!(0);
    scenario["gpus"][1]["unsupported"] = json!(["nvmlDeviceRegisterEvents"]);
    let mut rig = Rig::start("refused", scenario, &[]).await;
    watching(&rig).await;
    rig.change(|s| {
        s["events"].as_array_mut().unwrap().push(json!({"gpu": 2, "xid": 48}));
    });
    rig.until("48", |r| codes(r, "GPU-2") == [48]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_always_fails_is_no_hot_loop() {
    let mut scenario = healthy(2);
    scenario["driver"]["fail"] = json!({"nvmlEventSetWait_v2": 15});
    let mut rig = Rig::start("wait-fails", scenario, &[]).await;
    let waits = "tidegate_gpu_reporter_nvml_call_seconds_count{function=\"nvmlEventSetWait_v2\"}";
    let start = Instant::now();
    let third = || async { rig.metric(waits).await.filter(|n| *n >= 3.0) };
    let count = eventually("three waits", third).await;
    // One a second, and one at the very start.
    let seconds = start.elapsed().as_secs_f64();
    assert!(count <= seconds + 2.0, "{count} waits in {seconds} s");
    // It heals without a restart.
    rig.change(|s| {
        s["driver"]["fail"] = json!({});
        s["events"].as_array_mut().unwrap().push(json!({"gpu": 1, "xid": 63}));
    });
    rig.until("63", |r| codes(r, "GPU-1") == [63]).await;
    assert_eq!(rig.until("a report", |_| true).await.states()["GPU-1"], GpuState::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_of_a_gpu_are_read_anew_after_its_event() {
    // The medium tier would come in ten minutes.
    let more = ["--medium-interval-ms", "600000"];
    let mut rig = Rig::start("boost", healthy(2), &more).await;
    watching(&rig).await;
    rig.change(|s| {
        s["gpus"][1]["remap"] = json!({"uncorrected": 1, "pending": true});
        s["events"].as_array_mut().unwrap().push(json!({"gpu": 1, "xid": 63}));
    });
    let pending = |r: &Received| r.gpu("GPU-1").ecc.is_some_and(|e| e.remap_pending == Some(true));
    rig.until("pending remap", pending).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_driver_asks_for_leaves_with_the_next_round() {
    let mut rig = Rig::start("action", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    let at = rig.change(|s| s["gpus"][1]["recovery_action"] = json!(1));
    let asked = |r: &Received| r.gpu("GPU-1").recovery_action == Some(1);
    let took = rig.until("action", asked).await.at.duration_since(at);
    assert!(took < Duration::from_secs(1), "{took:?}");
    rig.change(|s| s["gpus"][1]["recovery_action"] = json!(0));
    rig.until("no action", |r| r.gpu("GPU-1").recovery_action == Some(0)).await;
}
