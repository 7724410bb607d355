//! Drivers and GPUs that break, and come back, while the reporter runs.

use std::time::Duration;

use crate::rig::{DEADLINE, Received, Rig, assert_fresh, healthy};
use serde_json::json;
use tidegate_proto::v1::{DriverStatus, GpuState};

fn driver(received: &Received) -> DriverStatus {
    received.report.driver.as_ref().unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_absent_at_the_start_is_told_and_taken_when_it_appears() {
    let mut scenario = healthy(2);
    scenario["driver"]["init_rc"] = json!(9);
    let mut rig = Rig::start("absent", scenario, &[]).await;
    let received = rig.until("absent", |r| driver(r) == DriverStatus::Absent).await;
    assert!(received.report.gpus.is_empty());
    assert!(received.report.driver.unwrap().detail.contains("DRIVER_NOT_LOADED (9)"));
    assert_eq!(rig.get("/healthz").await.0, 200);
    assert_eq!(rig.get("/readyz").await.0, 503);
    rig.change(|s| s["driver"]["init_rc"] = json!(0));
    let received = rig.until_state("GPU-1", GpuState::Ok).await;
    assert_eq!(driver(&received), DriverStatus::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_does_not_match_is_told_and_taken_when_it_does() {
    let mut scenario = healthy(1);
    scenario["driver"]["init_rc"] = json!(18);
    let mut rig = Rig::start("mismatch", scenario, &[]).await;
    rig.until("mismatch", |r| driver(r) == DriverStatus::Mismatch).await;
    rig.change(|s| s["driver"]["init_rc"] = json!(0));
    rig.until_state("GPU-0", GpuState::Ok).await;
    assert!(rig.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_path_without_a_library_is_an_absent_driver() {
    let rig = Rig::start("no-library", healthy(1), &[]).await;
    rig.until_state("GPU-0", GpuState::Ok).await;
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate-gpu-reporter"))
        .env_clear()
        .args(["--once", "--nvml-lib", "/nonexistent/libnvidia-ml.so.1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reloaded_driver_is_opened_again() {
    let mut rig = Rig::start("reload", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.change(|s| {
        s["driver"]["generation"] = json!(1);
        s["gpus"][0]["utilization"] = json!(77);
    });
    let again = |r: &Received| r.gpu("GPU-0").utilization.is_some_and(|u| u.sm_percent == Some(77));
    let received = rig.until("figures after the reload", again).await;
    assert_eq!(received.states()["GPU-1"], GpuState::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_gpu_is_named_by_its_uuid_and_recovers() {
    let mut rig = Rig::start("lost", healthy(4), &[]).await;
    rig.until_state("GPU-3", GpuState::Ok).await;
    let at = rig.change(|s| s["gpus"][2]["lost"] = json!(true));
    let received = rig.until_state("GPU-2", GpuState::Lost).await;
    let took = received.at.duration_since(at);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(received.gpu("GPU-2").state_detail.contains("GPU_IS_LOST (15)"));
    assert_fresh(&received, &["GPU-0", "GPU-1", "GPU-3"], 500);
    rig.change(|s| s["gpus"][2]["lost"] = json!(false));
    let received = rig.until_state("GPU-2", GpuState::Ok).await;
    assert_eq!(received.report.gpus.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_gpu_is_found_after_the_library_was_opened_again() {
    // Lost until the client initialises anew, as with a real driver.
    let mut rig = Rig::start("lost-reopen", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.change(|s| {
        let gone = s["gpus"].as_array_mut().unwrap().remove(1);
        s["spare"] = gone;
        s.as_object_mut().unwrap().remove("spare");
    });
    rig.until_state("GPU-1", GpuState::Lost).await;
    // Still not there after the opening: missing, by UUID.
    let received = rig.until_state("GPU-1", GpuState::Missing).await;
    assert_eq!(received.states()["GPU-0"], GpuState::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_lost_before_the_start_is_named_by_its_index() {
    let mut scenario = healthy(3);
    scenario["gpus"][1]["lost"] = json!(true);
    let mut rig = Rig::start("lost-early", scenario, &[]).await;
    let received = rig.until_state("index-1", GpuState::Lost).await;
    assert_eq!(received.report.gpus.len(), 3);
    rig.change(|s| s["gpus"][1]["lost"] = json!(false));
    let received = rig.until_state("GPU-1", GpuState::Ok).await;
    assert_eq!(received.report.gpus.len(), 3, "the makeshift name is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_gone_after_a_reload_is_missing_by_uuid_and_may_return() {
    let mut rig = Rig::start("missing", healthy(8), &[]).await;
    rig.until_state("GPU-7", GpuState::Ok).await;
    rig.change(|s| {
        s["gpus"].as_array_mut().unwrap().remove(3);
        s["driver"]["generation"] = json!(1);
    });
    let received = rig.until_state("GPU-3", GpuState::Missing).await;
    let fine = received.states().values().filter(|s| **s == GpuState::Ok).count();
    assert_eq!((fine, received.report.gpus.len()), (7, 8));
    rig.change(|s| {
        s["gpus"].as_array_mut().unwrap().insert(3, json!({"uuid": "GPU-3"}));
        s["driver"]["generation"] = json!(2);
    });
    rig.until_state("GPU-3", GpuState::Ok).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renumbered_gpus_keep_their_uuids() {
    let mut rig = Rig::start("renumbered", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.change(|s| {
        s["gpus"].as_array_mut().unwrap().reverse();
        s["driver"]["generation"] = json!(1);
    });
    let swapped = |r: &Received| (r.gpu("GPU-0").index, r.gpu("GPU-1").index) == (1, 0);
    let received = rig.until("swapped", swapped).await;
    assert_eq!(received.report.gpus.len(), 2);
    assert!(received.states().values().all(|s| *s == GpuState::Ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_gpu_leaves_the_others_fresh_and_recovers() {
    let mut rig = Rig::start("hung", healthy(8), &[]).await;
    rig.until_state("GPU-7", GpuState::Ok).await;
    let at = rig.change(|s| s["gpus"][4]["hang"] = json!(true));
    let received = rig.until_state("GPU-4", GpuState::Hung).await;
    let took = received.at.duration_since(at);
    // A period of 250 ms, a limit of 1 s, a look each 50 ms.
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(received.gpu("GPU-4").state_detail.starts_with("nvml"), "{received:?}");
    rig.forget();
    let others: Vec<String> = (0..8).filter(|i| *i != 4).map(|i| format!("GPU-{i}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let next =
        rig.until("ten more reports", |r| r.report.sequence > received.report.sequence + 10).await;
    assert_fresh(&next, &others, 500);
    assert_eq!(next.states()["GPU-4"], GpuState::Hung);
    assert!(next.gpu("GPU-4").utilization.is_none(), "old figures are not told");
    assert_eq!(driver(&next), DriverStatus::Ok);
    rig.change(|s| s["gpus"][4]["hang"] = json!(false));
    rig.until_state("GPU-4", GpuState::Slow).await;
    let received = rig.until_state("GPU-4", GpuState::Ok).await;
    assert_fresh(&received, &["GPU-4"], 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_hangs_from_the_start_leaves_the_others_fresh() {
    let mut scenario = healthy(3);
    scenario["gpus"][1]["hang"] = json!(true);
    let mut rig = Rig::start("hung-early", scenario, &["--hung-call-ms", "500"]).await;
    let received = rig.until_state("index-1", GpuState::Hung).await;
    assert_eq!(received.states()["GPU-0"], GpuState::Ok);
    let received = rig.until_state("GPU-2", GpuState::Ok).await;
    assert_fresh(&received, &["GPU-2"], 500);
    rig.change(|s| s["gpus"][1]["hang"] = json!(false));
    let received = rig.until_state("GPU-1", GpuState::Ok).await;
    assert_eq!(received.report.gpus.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_hung_gpus_than_replacements_are_a_hung_driver_that_still_reports() {
    let more = ["--hung-call-ms", "300", "--slow-call-ms", "200"];
    let mut rig = Rig::start("hung-three", healthy(4), &more).await;
    rig.until_state("GPU-3", GpuState::Ok).await;
    rig.change(|s| {
        for index in [0, 1, 2] {
            s["gpus"][index]["hang"] = json!(true);
        }
    });
    let received = rig.until("hung driver", |r| driver(r) == DriverStatus::Hung).await;
    rig.until("heartbeats", |r| r.report.sequence >= received.report.sequence + 5).await;
    assert!(threads(rig.pid()) <= 12, "{}", threads(rig.pid()));
    rig.change(|s| {
        for index in [0, 1, 2] {
            s["gpus"][index]["hang"] = json!(false);
        }
    });
    let all_fine = |r: &Received| {
        driver(r) == DriverStatus::Ok && r.states().values().all(|s| *s == GpuState::Ok)
    };
    rig.until("all fine again", all_fine).await;
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_hangs_again_and_again_leaves_no_threads_behind() {
    let more = ["--hung-call-ms", "200", "--slow-call-ms", "100", "--interval-ms", "100"];
    let mut rig = Rig::start("hung-often", healthy(2), &more).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    for _ in 0..4 {
        rig.change(|s| s["gpus"][1]["hang"] = json!(true));
        rig.until_state("GPU-1", GpuState::Hung).await;
        rig.change(|s| s["gpus"][1]["hang"] = json!(false));
        rig.until_state("GPU-1", GpuState::Ok).await;
    }
    // Main, sampler, events, and at most two that are on their way out.
    let few = || async { (threads(rig.pid()) <= 5).then_some(()) };
    crate::rig::eventually("few threads", few).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_in_initialisation_is_a_hung_driver_and_recovers() {
    let mut scenario = healthy(1);
    scenario["driver"]["hang"] = json!(["nvmlInit_v2"]);
    let more = ["--hung-call-ms", "200", "--slow-call-ms", "100"];
    let mut rig = Rig::start("hung-init", scenario, &more).await;
    let received = rig.until("hung", |r| driver(r) == DriverStatus::Hung).await;
    assert!(received.report.driver.unwrap().detail.contains("nvmlInit_v2"));
    assert_eq!(rig.get("/healthz").await.0, 200);
    rig.change(|s| s["driver"]["hang"] = json!([]));
    rig.until_state("GPU-0", GpuState::Ok).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_reporter_whose_driver_hangs_within_two_seconds() {
    let mut scenario = healthy(2);
    scenario["driver"]["hang"] = json!(["nvmlShutdown"]);
    let mut rig = Rig::start("hung-term", scenario, &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.change(|s| s["gpus"][0]["hang"] = json!(true));
    rig.until_state("GPU-0", GpuState::Hung).await;
    let (status, took) = rig.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(rig.all().pop().unwrap().report.leaving);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_reporter_without_a_control_plane_too() {
    let mut rig = Rig::start("term-alone", healthy(1), &[]).await;
    rig.until_state("GPU-0", GpuState::Ok).await;
    rig.server.stop();
    let (status, took) = rig.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_gpu_is_told_and_does_not_starve_the_others() {
    let more = ["--hung-call-ms", "5000", "--slow-call-ms", "100"];
    let mut rig = Rig::start("slow", healthy(3), &more).await;
    rig.until_state("GPU-2", GpuState::Ok).await;
    rig.change(|s| s["gpus"][0]["delay_ms"] = json!({"nvmlDeviceGetUtilizationRates": 400}));
    let received = rig.until_state("GPU-0", GpuState::Slow).await;
    let later = rig.until("later", |r| r.report.sequence > received.report.sequence + 8).await;
    assert_fresh(&later, &["GPU-1", "GPU-2"], 1_500);
    rig.change(|s| s["gpus"][0]["delay_ms"] = json!({}));
    rig.until_state("GPU-0", GpuState::Ok).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_fails_is_a_failing_driver_with_its_gpus_still_read() {
    let more = ["--medium-interval-ms", "1000"];
    let mut rig = Rig::start("count", healthy(2), &more).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.change(|s| s["driver"]["fail"] = json!({"nvmlDeviceGetCount_v2": 999}));
    let received = rig.until("failed", |r| driver(r) == DriverStatus::Failed).await;
    assert_fresh(&received, &["GPU-0", "GPU-1"], 500);
    rig.change(|s| s["driver"]["fail"] = json!({}));
    rig.until("fine", |r| driver(r) == DriverStatus::Ok).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_leaves_nothing_that_hinders_the_next_start() {
    for round in 0..3 {
        let rig = Rig::start(&format!("kill-{round}"), healthy(2), &["--interval-ms", "100"]).await;
        rig.until_state("GPU-1", GpuState::Ok).await;
        drop(rig);
    }
    assert!(DEADLINE > Duration::ZERO);
}
