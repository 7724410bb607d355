//! What a healthy reporter says, when, and to whom.

use std::{sync::atomic::Ordering, time::Duration};

use crate::rig::{PageServer, Received, Rig, eventually, free_address, healthy, write};
use serde_json::json;
use tidegate_proto::v1::{DriverStatus, GpuState};

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_of_a_gpu_arrives_as_the_driver_gave_it() {
    let scenario = json!({"gpus": [{
        "uuid": "GPU-a", "name": "NVIDIA H100", "architecture": 9, "pci_bus_id": "00000000:0A:00.0",
        "memory_total_mib": 1000, "memory_used_mib": 300, "memory_reserved_mib": 50,
        "utilization": 40, "memory_utilization": 30, "encoder_utilization": 2, "decoder_utilization": 3,
        "temperature_c": 55, "slowdown_c": 90, "shutdown_c": 95, "memory_temperature_c": 61,
        "power_w": 200, "power_limit_w": 400, "sm_clock_mhz": 1400, "sm_clock_max_mhz": 1410,
        "memory_clock_mhz": 1500, "memory_clock_max_mhz": 1593, "throttle_reasons": 4,
        "performance_state": 2, "recovery_action": 3,
        "ecc": {"enabled": true, "volatile_corrected": 1, "volatile_uncorrected": 2,
                "aggregate_corrected": 3, "aggregate_uncorrected": 4},
        "remap": {"corrected": 5, "uncorrected": 6, "pending": true, "failure": false},
        "pcie": {"tx_mib_s": 100, "rx_mib_s": 10, "generation": 4, "generation_max": 5, "width": 8,
                 "width_max": 16, "replay": 7},
        "processes": [{"pid": 11, "memory_mib": 5}, {"pid": 12}]}]});
    let more = ["--medium-interval-ms", "1000", "--processes", "--expected-gpus", "2"];
    let rig = Rig::start("figures", scenario, &more).await;
    let has_rates = |r: &Received| {
        let gpu = r.report.gpus.first();
        gpu.is_some_and(|g| g.pcie.is_some_and(|p| p.tx_bytes_per_second.is_some()))
            && gpu.is_some_and(|g| g.power.is_some_and(|p| p.energy_mj.is_some()))
            && r.report.host.as_ref().is_some_and(|h| h.cpu_use_bp.is_some())
    };
    let received = rig.until("rates", has_rates).await;
    let report = &received.report;
    assert_eq!(
        (report.node.as_str(), report.part.as_str(), report.interval_ms),
        ("node-a", "", 250)
    );
    assert_eq!(report.boot_id.len(), 32);
    let driver = report.driver.as_ref().unwrap();
    assert_eq!(driver.status(), DriverStatus::Ok);
    assert_eq!((driver.driver_version.as_str(), driver.cuda_version), ("580.95.05", Some(13_000)));
    assert_eq!(driver.gpus_expected, Some(2));
    let gpu = received.gpu("GPU-a");
    assert_eq!((gpu.index, gpu.state()), (0, GpuState::Ok));
    assert_eq!((gpu.name.as_str(), gpu.architecture.as_str()), ("NVIDIA H100", "hopper"));
    assert_eq!(gpu.pci_bus_id, "00000000:0A:00.0");
    let load = gpu.utilization.unwrap();
    let percents =
        [load.sm_percent, load.memory_percent, load.encoder_percent, load.decoder_percent];
    assert_eq!(percents, [Some(40), Some(30), Some(2), Some(3)]);
    let memory = gpu.memory.unwrap();
    let mib = |n: u64| Some(n << 20);
    // Used 300 of 1000 MiB, so 700 are free.
    assert_eq!((memory.total_bytes, memory.used_bytes), (mib(1_000), mib(300)));
    assert_eq!((memory.free_bytes, memory.reserved_bytes), (mib(700), mib(50)));
    let thermal = gpu.thermal.unwrap();
    assert_eq!((thermal.temperature_c, thermal.memory_temperature_c), (Some(55), Some(61)));
    assert_eq!((thermal.slowdown_c, thermal.shutdown_c), (Some(90), Some(95)));
    let power = gpu.power.unwrap();
    assert_eq!((power.draw_mw, power.limit_mw), (Some(200_000), Some(400_000)));
    let clocks = gpu.clocks.unwrap();
    assert_eq!((clocks.sm_mhz, clocks.sm_max_mhz), (Some(1_400), Some(1_410)));
    assert_eq!((clocks.memory_mhz, clocks.memory_max_mhz), (Some(1_500), Some(1_593)));
    assert_eq!((clocks.event_reasons, clocks.performance_state), (Some(4), Some(2)));
    let ecc = gpu.ecc.unwrap();
    assert_eq!((ecc.enabled, ecc.volatile_corrected), (Some(true), Some(1)));
    assert_eq!((ecc.volatile_uncorrected, ecc.aggregate_corrected), (Some(2), Some(3)));
    assert_eq!((ecc.aggregate_uncorrected, ecc.remapped_rows_corrected), (Some(4), Some(5)));
    assert_eq!((ecc.remapped_rows_uncorrected, ecc.remap_pending), (Some(6), Some(true)));
    assert_eq!(ecc.remap_failure, Some(false));
    let pcie = gpu.pcie.unwrap();
    let near = |rate: Option<u64>, mib: u64| rate.unwrap().abs_diff(mib << 20) < (mib << 20) / 10;
    assert!(near(pcie.tx_bytes_per_second, 100) && near(pcie.rx_bytes_per_second, 10), "{pcie:?}");
    assert_eq!((pcie.link_generation, pcie.link_generation_max), (Some(4), Some(5)));
    assert_eq!(
        (pcie.link_width, pcie.link_width_max, pcie.replay_count),
        (Some(8), Some(16), Some(7))
    );
    let processes = &gpu.processes.as_ref().unwrap().compute;
    assert_eq!((processes[0].pid, processes[0].used_memory_bytes), (11, mib(5)));
    assert_eq!((processes[1].pid, processes[1].used_memory_bytes), (12, None));
    assert_eq!((gpu.recovery_action, gpu.mig.as_ref().unwrap().enabled), (Some(3), false));
    assert!(gpu.unsupported.is_empty(), "{:?}", gpu.unsupported);
    let host = report.host.unwrap();
    assert!(host.memory_total_bytes > host.memory_available_bytes);
    assert!(host.load_1m.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_come_each_period_with_fresh_figures() {
    let rig = Rig::start("period", healthy(8), &["--interval-ms", "500"]).await;
    rig.until("tenth report", |r| r.report.sequence == 10).await;
    let all = rig.all();
    let steady: Vec<&Received> = all.iter().filter(|r| r.report.sequence >= 4).collect();
    let gaps: Vec<u128> =
        steady.windows(2).map(|w| w[1].at.duration_since(w[0].at).as_millis()).collect();
    // 500 ms ± 10 %, and what a loaded machine adds.
    let mean = gaps.iter().sum::<u128>() / u128::try_from(gaps.len()).unwrap();
    assert!((400..=800).contains(&mean), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "no jitter in {gaps:?}");
    let uuids: Vec<String> = (0..8).map(|i| format!("GPU-{i}")).collect();
    let uuids: Vec<&str> = uuids.iter().map(String::as_str).collect();
    crate::rig::assert_fresh(steady[0], &uuids, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_figure_arrives_within_two_periods() {
    let mut rig = Rig::start("change", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    let at = rig.change(|s| s["gpus"][1]["throttle_reasons"] = json!(0x48));
    let hot = |r: &Received| r.gpu("GPU-1").clocks.is_some_and(|c| c.event_reasons == Some(0x48));
    let took = rig.until("throttle", hot).await.at.duration_since(at);
    assert!(took < Duration::from_millis(1_000), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_overlay_reaches_the_report() {
    let mut scenario = healthy(1);
    scenario["load_file"] = json!("load.json");
    let rig = Rig::start("overlay", scenario, &[]).await;
    rig.until_state("GPU-0", GpuState::Ok).await;
    write(&rig.folder.join("load.json"), r#"{"gpus":{"0":{"utilization":83,"power_w":310}}}"#);
    let loaded =
        |r: &Received| r.gpu("GPU-0").utilization.is_some_and(|u| u.sm_percent == Some(83));
    let received = rig.until("load", loaded).await;
    assert_eq!(received.gpu("GPU-0").power.unwrap().draw_mw, Some(310_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_sets_the_period_within_bounds() {
    let rig = Rig::start("wish", healthy(1), &["--interval-ms", "1000"]).await;
    rig.plane.wish_interval_ms(200);
    rig.until("200 ms", |r| r.report.interval_ms == 200).await;
    rig.plane.wish_interval_ms(1);
    rig.until("lower bound", |r| r.report.interval_ms == 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sequence_counts_up_by_one_and_goes_on_after_a_reconnect() {
    let mut rig = Rig::start("sequence", healthy(1), &[]).await;
    rig.until("fourth", |r| r.report.sequence == 4).await;
    let before = rig.all();
    rig.server.stop();
    let wait_end =
        || async { rig.metric("tidegate_gpu_reporter_connected").await.filter(|c| *c == 0.0) };
    eventually("disconnected", wait_end).await;
    rig.forget();
    rig.server = rig.plane.serve(rig.server.address);
    let after = rig.until("a report after the restart", |_| true).await;
    assert_eq!(after.report.boot_id, before[0].report.boot_id);
    // What could not be sent was not queued: the first report is of now.
    crate::rig::assert_fresh(&after, &["GPU-0"], 600);
    let all = rig.all();
    let sequences: Vec<u64> = all.iter().take(before.len()).map(|r| r.report.sequence).collect();
    let counted: Vec<u64> = (1..).take(before.len()).collect();
    assert_eq!(sequences, counted);
    assert!(after.report.sequence > *sequences.last().unwrap());
    let twice =
        || async { rig.metric("tidegate_gpu_reporter_connects_total").await.filter(|n| *n >= 2.0) };
    eventually("two streams counted", twice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_does_not_read_costs_reports_not_memory() {
    let rig = Rig::start("frozen", healthy(8), &["--interval-ms", "100"]).await;
    rig.until("third", |r| r.report.sequence == 3).await;
    rig.plane.freeze(true);
    let conflated = || async {
        rig.metric("tidegate_gpu_reporter_conflated_total").await.filter(|n| *n >= 10.0)
    };
    eventually("ten conflated", conflated).await;
    let resident = rig.metric("tidegate_gpu_reporter_resident_bytes").await.unwrap();
    assert!(resident < 32e6, "{resident}");
    let sent = rig.metric("tidegate_gpu_reporter_reports_total").await.unwrap();
    rig.plane.freeze(false);
    // What was on its way arrives, and then what is made after it: no sequence number is left out.
    let all_sent = |r: &Received| f64::from(u32::try_from(r.report.sequence).unwrap()) > sent + 1.0;
    let fresh = rig.until("a new report", all_sent).await;
    crate::rig::assert_fresh(&fresh, &["GPU-7"], 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_gpus_cost_little_memory_and_less_than_a_twentieth_of_a_core() {
    let rig = Rig::start("cost", healthy(8), &["--interval-ms", "500"]).await;
    rig.until("fourth", |r| r.report.sequence == 4).await;
    let cost = || async { rig.metric("tidegate_gpu_reporter_cpu_seconds_total").await.unwrap() };
    let (start, before) = (std::time::Instant::now(), cost().await);
    rig.until("fourteenth", |r| r.report.sequence == 14).await;
    let share = (cost().await - before) / start.elapsed().as_secs_f64();
    // 0.6 % of a core when optimised, on a fake driver whose event wait polls.
    assert!(share < 0.05, "{share}");
    let resident = rig.metric("tidegate_gpu_reporter_resident_bytes").await.unwrap();
    assert!(resident < 32e6, "{resident}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_says_goodbye_and_ends_at_once() {
    let mut rig = Rig::start("goodbye", healthy(2), &[]).await;
    rig.until_state("GPU-1", GpuState::Ok).await;
    rig.forget();
    let (status, took) = rig.terminate().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(2), "{took:?}");
    let last = rig.all().pop().unwrap().report;
    assert!(last.leaving && last.gpus.len() == 2, "{last:?}");
    assert_eq!(rig.all().iter().filter(|r| r.report.leaving).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_node_names_itself_and_its_gpus_only() {
    let rig = Rig::start("part", healthy(4), &["--gpus", "1,GPU-3"]).await;
    let received = rig.until("two GPUs", |r| r.report.gpus.len() == 2).await;
    assert_eq!(received.report.part, "1|GPU-3");
    assert_eq!(received.states().into_keys().collect::<Vec<_>>(), ["GPU-1", "GPU-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_needs_control_plane_and_driver_and_health_needs_neither() {
    let mut rig = Rig::start("ready", healthy(1), &[]).await;
    let ready = |want: u16| {
        let listen = rig.listen;
        move || async move {
            Some(crate::rig::get(listen, "/readyz").await).filter(|(code, _)| *code == want)
        }
    };
    eventually("ready", ready(200)).await;
    rig.server.stop();
    let (_, why) = eventually("not ready", ready(503)).await;
    assert!(why.contains("control plane: not connected"), "{why}");
    assert_eq!(rig.get("/healthz").await.0, 200);
}

fn workloads(endpoint: &str, url: &str) -> String {
    format!(
        "version: 1\nworkloads:\n- {{endpoint: \"{endpoint}\", service: llm, gpus: [1], slots: 8, \
         metrics_url: \"{url}\"}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_server_is_reported_with_its_gpu_and_its_metrics() {
    let page = "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\n\
                vllm:kv_cache_usage_perc 0.5\nvllm:generation_tokens_total 1000\n";
    let server = PageServer::start(page).await;
    let folder = crate::rig::folder("engine-files");
    let file = folder.join("workloads.yaml");
    write(&file, &workloads("10.0.0.1:8000", &format!("http://{}/metrics", server.address)));
    let mut rig = Rig::start("engine", healthy(2), &["--workloads", file.to_str().unwrap()]).await;
    let engine = |r: &Received| r.report.workloads.first().and_then(|w| w.engine.clone());
    let received =
        rig.until("engine", |r| engine(r).is_some_and(|e| e.tokens_per_second.is_some())).await;
    let workload = &received.report.workloads[0];
    assert_eq!((workload.endpoint.as_str(), workload.service.as_str()), ("10.0.0.1:8000", "llm"));
    assert_eq!(workload.gpu_uuids, ["GPU-1"]);
    let found = engine(&received).unwrap();
    assert_eq!((found.kind.as_str(), found.running, found.waiting), ("vllm", Some(3), Some(2)));
    assert_eq!((found.kv_use_bp, found.slots), (Some(5_000), Some(8)));
    assert_eq!((found.tokens_per_second, found.ttft_p50_ms), (Some(0.0), None));
    // The engine stops telling how many wait: unknown, not zero.
    *server.page.lock().unwrap() = "vllm:num_requests_running 4\n".into();
    let changed =
        rig.until("four running", |r| engine(r).is_some_and(|e| e.running == Some(4))).await;
    assert_eq!(engine(&changed).unwrap().waiting, None);
    // The page is gone: its last figures go too, the workload stays.
    *server.page.lock().unwrap() = String::new();
    rig.forget();
    let gone = rig.until("no engine", |r| engine(r).is_none()).await;
    assert_eq!(gone.report.workloads.len(), 1);
    assert!(rig.metric("tidegate_gpu_reporter_scrape_failures_total").await.unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_server_that_does_not_answer_delays_nobody() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let folder = crate::rig::folder("silent-files");
    let file = folder.join("workloads.yaml");
    write(&file, &workloads("10.0.0.1:8000", &format!("http://{address}/metrics")));
    let more = ["--workloads", file.to_str().unwrap(), "--scrape-timeout-ms", "100"];
    let mut rig = Rig::start("silent", healthy(2), &more).await;
    let failed = || async {
        rig.metric("tidegate_gpu_reporter_scrape_failures_total").await.filter(|n| *n >= 3.0)
    };
    eventually("three timeouts", failed).await;
    rig.forget();
    let received = rig.until("a workload", |r| !r.report.workloads.is_empty()).await;
    assert!(received.report.workloads[0].engine.is_none());
    crate::rig::assert_fresh(&received, &["GPU-0", "GPU-1"], 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_larger_than_a_mebibyte_is_refused() {
    let page =
        "vllm:num_requests_running 3\n".to_owned() + &"# filler filler filler\n".repeat(50_000);
    assert!(page.len() > 1 << 20);
    let server = PageServer::start(&page).await;
    let file = crate::rig::folder("huge-files").join("workloads.yaml");
    write(&file, &workloads("10.0.0.1:8000", &format!("http://{}/metrics", server.address)));
    let rig = Rig::start("huge", healthy(2), &["--workloads", file.to_str().unwrap()]).await;
    let asked = || async { (server.asked.load(Ordering::Relaxed) >= 3).then_some(()) };
    eventually("three scrapes", asked).await;
    assert!(rig.all().iter().all(|r| r.report.workloads.iter().all(|w| w.engine.is_none())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_workloads_file_leaves_the_old_list_in_force() {
    let file = crate::rig::folder("workload-files").join("workloads.yaml");
    let url = format!("http://{}/metrics", free_address());
    write(&file, &workloads("10.0.0.1:8000", &url));
    let mut rig =
        Rig::start("workloads", healthy(2), &["--workloads", file.to_str().unwrap()]).await;
    let endpoint = |r: &Received| r.report.workloads.first().map(|w| w.endpoint.clone());
    rig.until("first list", |r| endpoint(r).as_deref() == Some("10.0.0.1:8000")).await;
    write(&file, "version: 1\nworkloads: [{endpoint: nonsense}]\n");
    let invalid = || async {
        rig.metric("tidegate_gpu_reporter_workloads_valid").await.filter(|valid| *valid == 0.0)
    };
    eventually("file refused", invalid).await;
    rig.forget();
    let kept = rig.until("a report", |_| true).await;
    assert_eq!(endpoint(&kept).as_deref(), Some("10.0.0.1:8000"));
    let log = std::fs::read_to_string(rig.folder.join("stderr")).unwrap();
    assert!(log.contains("workloads[0].gpus") && log.contains("workloads[0].endpoint"), "{log}");
    write(&file, &workloads("10.0.0.2:8000", &url));
    rig.until("second list", |r| endpoint(r).as_deref() == Some("10.0.0.2:8000")).await;
    assert_eq!(rig.metric("tidegate_gpu_reporter_workloads_valid").await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_carry_own_names_and_those_of_dcgm_exporter() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["utilization"] = json!(40);
    scenario["gpus"][0]["memory_used_mib"] = json!(300);
    scenario["gpus"][0]["unsupported"] = json!(["nvmlDeviceGetEncoderUtilization"]);
    let rig = Rig::start("metrics", scenario, &[]).await;
    rig.until_state("GPU-0", GpuState::Ok).await;
    let (_, page) = rig.get("/metrics").await;
    for line in [
        "tidegate_gpu_sm_utilization_ratio{uuid=\"GPU-0\",index=\"0\"} 0.4",
        "tidegate_gpu_memory_used_bytes{uuid=\"GPU-0\",index=\"0\"} 314572800",
        "tidegate_gpu_state{uuid=\"GPU-0\",state=\"ok\"} 1",
        "tidegate_gpu_state{uuid=\"GPU-0\",state=\"lost\"} 0",
        "tidegate_gpu_driver_status{status=\"ok\"} 1",
        "tidegate_gpu_reporter_gpus_seen 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} not in\n{page}");
    }
    let labels = "{gpu=\"0\",UUID=\"GPU-0\",pci_bus_id=\"00000000:01:00.0\",device=\"nvidia0\",\
                  modelName=\"NVIDIA A100-SXM4-80GB\",Hostname=\"node-a\"}";
    for (name, value) in [
        ("DCGM_FI_DEV_GPU_UTIL", 40.0),
        ("DCGM_FI_DEV_FB_USED", 300.0),
        ("DCGM_FI_DEV_SM_CLOCK", 1_410.0),
        ("DCGM_FI_DEV_POWER_USAGE", 60.0),
        ("DCGM_FI_DEV_GPU_TEMP", 35.0),
    ] {
        let series = format!("{name}{labels}");
        let found = page.lines().find_map(|l| l.strip_prefix(&series)?.trim().parse::<f64>().ok());
        assert_eq!(found, Some(value), "{series}");
    }
    // Unsupported has no line, zero has one.
    assert!(!page.contains("tidegate_gpu_encoder_utilization_ratio{"));
    assert!(page.contains("tidegate_gpu_decoder_utilization_ratio{uuid=\"GPU-0\",index=\"0\"} 0"));
    assert!(page.contains("nvml_call_seconds_count{function=\"nvmlDeviceGetUtilizationRates\"}"));
}
