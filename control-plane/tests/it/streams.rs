//! Reports go in, snapshots come out: over real gRPC on the loopback.

use std::time::Duration;

use crate::common::{Plane, eventually, feedback, report, workload};
use tidegate_proto::v1::{self, ReportVerdict};
use tokio::time::Instant;
use tonic::Code;

const FIRST: &str = "127.0.0.1:8001";

#[tokio::test]
async fn report_reaches_a_proxy() {
    let plane = Plane::quick(2, "").await;
    let mut proxy = plane.proxy("p1").await;
    let first = proxy.next().await.unwrap().unwrap();
    assert!(first.full);
    assert_eq!(first.services[0].endpoints.len(), 2);
    assert_eq!(first.services[0].endpoints[0].age_ms, None, "no report yet: unknown");
    let mut reporter = plane.reporter().await;
    let answer = reporter.report(report(1, 2)).await;
    assert_eq!(answer.verdict(), ReportVerdict::Accepted, "{}", answer.reason);
    let known = proxy.until(|e| e.address == FIRST && e.age_ms.is_some()).await;
    assert_eq!((known.node.as_str(), known.gpu_type.contains("A100")), ("node-a", true));
    assert_eq!(known.gate_pm, 1_000);
}

#[tokio::test]
async fn update_comes_each_period_also_when_nothing_changes() {
    let plane = Plane::quick(1, "").await;
    let mut proxy = plane.proxy("p1").await;
    let mut last = proxy.next().await.unwrap().unwrap();
    for _ in 0..5 {
        let next = proxy.next().await.unwrap().unwrap();
        assert!(next.epoch > last.epoch, "epochs count up");
        assert_eq!((next.instance, next.period_ms, next.full), (last.instance, 100, false));
        last = next;
    }
}

#[tokio::test]
async fn fatal_xid_is_told_long_before_the_period() {
    let more = "period_ms: 5000\ntimeouts: {warm_up_ms: 0}";
    let plane = Plane::start(&crate::common::fleet_yaml(2), more).await;
    let mut proxy = plane.proxy("p1").await;
    let mut reporter = plane.reporter().await;
    reporter.report(report(1, 2)).await;
    proxy.until(|e| e.address == FIRST && e.age_ms.is_some()).await;
    let mut broken = report(2, 2);
    broken.gpus[0].xids = vec![v1::XidEvent { code: 79, age_ms: 0, event_id: 1 }];
    let sent = Instant::now();
    reporter.send(broken).await;
    let down = proxy.until(|e| e.address == FIRST && e.gate_pm == 0).await;
    assert_eq!(down.hard(), v1::HardState::Down);
    assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
}

#[tokio::test]
async fn in_flight_comes_from_the_engine_else_from_the_proxies_else_is_unknown() {
    let plane = Plane::quick(1, "").await;
    let mut watcher = plane.proxy("watcher").await;
    let mut reporter = plane.reporter().await;
    let mut with_engine = report(1, 1);
    with_engine.workloads = vec![workload(Some((5, 2)))];
    reporter.report(with_engine).await;
    let mut proxy = plane.proxy("p1").await;
    proxy.say(feedback(1, 3, 0)).await;
    // Running and waiting, 5 + 2, win over the proxy's 3.
    watcher.until(|e| e.in_flight == Some(7)).await;
    let mut without = report(2, 1);
    without.workloads = vec![workload(None)];
    reporter.report(without).await;
    watcher.until(|e| e.in_flight == Some(3)).await;
    drop(proxy);
    watcher.until(|e| e.in_flight.is_none_or(|n| n == 0)).await;
}

#[tokio::test]
async fn feedback_counts_only_while_its_stream_lives() {
    let plane = Plane::quick(1, "").await;
    let mut one = plane.proxy("p1").await;
    let mut two = plane.proxy("p2").await;
    one.say(feedback(1, 3, 4)).await;
    two.say(feedback(1, 5, 6)).await;
    one.until(|e| e.in_flight == Some(8)).await;
    drop(two);
    one.until(|e| e.in_flight == Some(3)).await;
    let outcomes = &plane.json("/api/fleet").await["services"][0]["endpoints"][0]["outcomes"];
    assert_eq!(outcomes["ok"], 10, "what has ended stays counted");
}

#[tokio::test]
async fn restart_has_a_new_instance_and_sends_everything() {
    let one = Plane::quick(2, "").await;
    let mut proxy = one.proxy("p1").await;
    let before = proxy.next().await.unwrap().unwrap();
    one.server.stop();
    let two = Plane::quick(2, "").await;
    let after = two.proxy("p1").await.next().await.unwrap().unwrap();
    assert_ne!(before.instance, after.instance);
    assert!(after.full);
    assert_eq!(after.services[0].endpoints.len(), 2);
}

#[tokio::test]
async fn new_discovery_file_reaches_proxies_and_a_bad_one_does_not() {
    let plane = Plane::quick(2, "").await;
    let mut proxy = plane.proxy("p1").await;
    assert_eq!(proxy.next().await.unwrap().unwrap().services[0].endpoints.len(), 2);
    plane.folder.write("fleet.yaml", "version: 1\nservices: [{name: llm, endpoints: [{}]}]");
    eventually("the file is refused", async || {
        plane.json("/api/fleet").await["discovery"]["current"] == false
    })
    .await;
    let fleet = plane.json("/api/fleet").await;
    assert_eq!(fleet["services"][0]["endpoints"].as_array().unwrap().len(), 2, "the old one rules");
    let error = fleet["discovery"]["errors"][0].as_str().unwrap();
    assert!(error.starts_with("services[0].endpoints[0].address: is missing"), "{error}");
    let (_, metrics) = plane.get("/metrics").await;
    assert!(metrics.contains("tidegate_discovery_current 0.0"), "{metrics}");
    plane.folder.write("fleet.yaml", &crate::common::fleet_yaml(3));
    proxy.until(|e| e.address == "127.0.0.1:8003").await;
    plane.folder.write("fleet.yaml", &crate::common::fleet_yaml(1));
    let end = Instant::now() + crate::common::DEADLINE;
    let mut removed = Vec::new();
    while removed.len() < 2 && Instant::now() < end {
        let update = proxy.next().await.unwrap().unwrap();
        removed.extend(update.services.into_iter().flat_map(|s| s.endpoints_removed));
    }
    removed.sort();
    assert_eq!(removed, ["127.0.0.1:8002", "127.0.0.1:8003"]);
}

#[tokio::test]
async fn start_with_a_bad_discovery_file_serves_nobody_until_it_is_good() {
    let plane = Plane::start("version: 1\nservices: 7", "period_ms: 100").await;
    let (status, why) = plane.get("/readyz").await;
    assert_eq!((status, why.as_str()), (503, "no discovery file is in force\n"));
    assert_eq!(plane.get("/healthz").await.0, 200);
    let mut proxy = plane.proxy("p1").await;
    plane.folder.write("fleet.yaml", "version: 1\nservices: [{name: llm, endpoints: []}]");
    let first = proxy.next().await.unwrap().unwrap();
    assert_eq!((first.epoch, first.full), (1, true), "nothing came before");
    assert_eq!(plane.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn proxy_gets_only_the_services_it_names() {
    let fleet = "version: 1\nservices:\n- {name: a, endpoints: [{address: \"1.1.1.1:1\"}]}\n\
                 - {name: b, endpoints: [{address: \"1.1.1.2:1\"}]}";
    let plane = Plane::start(fleet, "period_ms: 100").await;
    let mut proxy = crate::common::Proxy::open(plane.channel().await).await.unwrap();
    proxy
        .say(v1::watch_request::Message::Hello(v1::Hello {
            proxy_id: "p1".into(),
            services: vec!["b".into()],
            ..v1::Hello::default()
        }))
        .await;
    let update = proxy.next().await.unwrap().unwrap();
    let names: Vec<&str> = update.services.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test]
async fn newer_stream_of_a_reporter_ends_the_older() {
    let plane = Plane::quick(1, "").await;
    let mut old = plane.reporter().await;
    old.report(report(1, 1)).await;
    let mut new = plane.reporter().await;
    assert_eq!(new.report(report(1, 1)).await.verdict(), ReportVerdict::Stale, "a replay");
    assert_eq!(old.report(report(2, 1)).await.verdict(), ReportVerdict::Accepted, "still there");
    assert_eq!(new.report(report(3, 1)).await.verdict(), ReportVerdict::Accepted);
    let end = old.answer().await.unwrap_err();
    assert_eq!(end.code(), Code::Aborted);
}

#[tokio::test]
async fn two_reporters_share_a_node() {
    let plane = Plane::quick(2, "").await;
    let part = |index: usize| {
        let mut report = report(1, 2);
        report.part = index.to_string();
        report.gpus = vec![report.gpus[index].clone()];
        report.boot_id = format!("boot-{index}");
        report
    };
    let (mut zero, mut one) = (plane.reporter().await, plane.reporter().await);
    assert_eq!(zero.report(part(0)).await.verdict(), ReportVerdict::Accepted);
    assert_eq!(one.report(part(1)).await.verdict(), ReportVerdict::Accepted);
    eventually("both GPUs are known", async || {
        let fleet = plane.json("/api/fleet").await;
        let endpoints = fleet["services"][0]["endpoints"].as_array().unwrap().clone();
        endpoints.iter().all(|e| !e["age_ms"].is_null())
    })
    .await;
    let nodes = plane.json("/api/fleet").await["nodes"].as_array().unwrap().len();
    assert_eq!(nodes, 2, "each reporter has its line");
}

#[tokio::test]
async fn newer_stream_of_a_proxy_ends_the_older() {
    let plane = Plane::quick(1, "").await;
    let mut old = plane.proxy("p1").await;
    old.next().await.unwrap();
    let _new = plane.proxy("p1").await;
    let end = loop {
        match old.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Aborted);
}

#[tokio::test]
async fn configuration_state_of_a_proxy_shows() {
    let plane = Plane::quick(1, "").await;
    let mut proxy = plane.proxy("p1").await;
    proxy
        .say(v1::watch_request::Message::Feedback(v1::Feedback {
            sequence: 1,
            config_state: v1::ConfigState::LastGood.into(),
            config_error: "services: is missing".into(),
            rung: 2,
            ..v1::Feedback::default()
        }))
        .await;
    eventually("the state shows", async || {
        plane.json("/api/fleet").await["proxies"][0]["config"] == "last_good"
    })
    .await;
    let fleet = plane.json("/api/fleet").await;
    let shown = &fleet["proxies"][0];
    assert_eq!(shown["config_error"], "services: is missing");
    assert_eq!((&shown["rung"], &shown["filter_version"]), (&2.into(), &"1.2.3".into()));
}

#[tokio::test]
async fn reporter_that_dies_is_shown_and_its_data_ages() {
    let plane = Plane::quick(1, "").await;
    let mut reporter = plane.reporter().await;
    reporter.report(report(1, 1)).await;
    drop(reporter);
    eventually("the node is disconnected", async || {
        plane.json("/api/fleet").await["nodes"][0]["state"] == "disconnected"
    })
    .await;
    eventually("the data ages", async || {
        let fleet = plane.json("/api/fleet").await;
        fleet["services"][0]["endpoints"][0]["age_ms"].as_u64().is_some_and(|age| age > 300)
    })
    .await;
}

#[tokio::test]
async fn reporter_that_leaves_in_good_order_is_shown_as_left() {
    let plane = Plane::quick(1, "").await;
    let mut reporter = plane.reporter().await;
    reporter.report(v1::ReportRequest { leaving: true, ..report(1, 1) }).await;
    assert_eq!(plane.json("/api/fleet").await["nodes"][0]["state"], "left");
}
