//! The shape of what the admin listener answers.

use crate::common::{Plane, feedback, report, workload};
use serde_json::Value;

/// The keys of an object, sorted.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// A control plane that knows one endpoint, one node and one proxy.
async fn known() -> Plane {
    let plane = Plane::quick(1, "").await;
    let mut proxy = plane.proxy("p1").await;
    let mut reporter = plane.reporter().await;
    let mut full = report(1, 1);
    full.workloads = vec![workload(Some((2, 1)))];
    reporter.report(full).await;
    proxy.say(feedback(1, 1, 1)).await;
    proxy.until(|e| e.in_flight == Some(3)).await;
    // Streams that outlive this function, so that what they brought stays.
    std::mem::forget((proxy, reporter));
    plane
}

#[tokio::test]
async fn fleet_has_its_documented_keys() {
    let plane = known().await;
    let fleet = plane.json("/api/fleet").await;
    assert_eq!(
        keys(&fleet),
        [
            "alarms",
            "discovery",
            "epoch",
            "instance",
            "nodes",
            "not_ready",
            "period_ms",
            "proxies",
            "ready",
            "services",
            "uptime_ms",
            "version"
        ]
    );
    assert_eq!(
        keys(&fleet["discovery"]),
        ["current", "endpoints", "errors", "loads", "refusals", "services", "source"]
    );
    assert_eq!(
        keys(&fleet["services"][0]),
        ["arrival_rate", "endpoints", "mean_service_ms", "name", "proxies_live"]
    );
    let endpoint = &fleet["services"][0]["endpoints"][0];
    assert_eq!(
        keys(endpoint),
        [
            "address",
            "age_ms",
            "gate",
            "gpu_type",
            "gpus",
            "hard",
            "held",
            "in_flight",
            "memory_free",
            "node",
            "outcomes",
            "reasons",
            "share",
            "slots",
            "success",
            "traffic_share",
            "type_weight",
            "weight"
        ]
    );
    assert_eq!(
        keys(&fleet["nodes"][0]),
        [
            "accepted",
            "age_ms",
            "boot_id",
            "cpu_use",
            "driver",
            "driver_detail",
            "driver_version",
            "gpus",
            "gpus_expected",
            "interval_ms",
            "node",
            "part",
            "refused",
            "reporter_version",
            "sequence",
            "state",
            "workloads"
        ]
    );
    assert_eq!(
        keys(&fleet["proxies"][0]),
        [
            "config",
            "config_error",
            "connected_ms",
            "filter_version",
            "heard_ms",
            "in_flight",
            "proxy_id",
            "rung",
            "services"
        ]
    );
    assert_eq!((&endpoint["in_flight"], &endpoint["gate"]), (&3.into(), &1.0.into()));
    assert_eq!((&endpoint["gpus"][0], &endpoint["memory_free"]), (&"0".into(), &Value::Null));
    assert_eq!(fleet["instance"].as_str().unwrap().len(), 16);
    assert_eq!(fleet["nodes"][0]["state"], "reporting");
}

#[tokio::test]
async fn explain_gives_each_factor_as_a_number() {
    let plane = known().await;
    let explained = plane.json("/api/explain?endpoint=127.0.0.1:8001").await;
    assert_eq!(keys(&explained), ["endpoint", "explanations"]);
    let one = &explained["explanations"][0];
    assert_eq!(keys(one), ["factors", "reasons", "service", "state"]);
    let factors = one["factors"].as_array().unwrap();
    assert!(factors.len() >= 10, "{factors:?}");
    for factor in factors {
        assert!(factor["value"].is_number(), "{factor}");
    }
    let named = |name: &str| factors.iter().any(|f| f["name"] == name);
    for name in
        ["score.smoothed", "capacity.used", "share.used", "gate.published", "weight.published"]
    {
        assert!(named(name), "{name} in {factors:?}");
    }
}

#[tokio::test]
async fn wrong_questions_get_an_answer_with_a_reason() {
    let plane = Plane::quick(1, "").await;
    plane.proxy("p1").await.next().await.unwrap();
    for (path, status, error) in [
        ("/api/explain", 400, "endpoint: is missing; expected ip:port"),
        ("/api/explain?endpoint=1.1.1.1:1", 404, "endpoint: \"1.1.1.1:1\" is not in discovery"),
        ("/api/explain?endpoint=%00%0a", 404, "endpoint: \"  \" is not in discovery"),
        ("/nothing", 404, "no such path"),
    ] {
        let (found, body) = plane.get(path).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((found, body["error"].as_str().unwrap()), (status, error), "{path}");
    }
}

#[tokio::test]
async fn metrics_show_the_running_fleet() {
    let plane = known().await;
    let (status, text) = plane.get("/metrics").await;
    assert_eq!(status, 200);
    for expected in [
        "tidegate_endpoint_in_flight{service=\"llm\",endpoint=\"127.0.0.1:8001\"} 3.0",
        "tidegate_node_connected{node=\"node-a\",part=\"\"} 1.0",
        "tidegate_streams{kind=\"report\"} 1.0",
        "tidegate_streams{kind=\"watch\"} 1.0",
        "tidegate_reports_accepted_total 1.0",
        "tidegate_feedback_total{result=\"counted\"} 1.0",
        "tidegate_proxies{config=\"ok\"} 1.0",
        "tidegate_connections 2.0",
    ] {
        assert!(text.lines().any(|l| l == expected), "{expected} is missing in\n{text}");
    }
    let pushed = text.lines().find_map(|l| l.strip_prefix("tidegate_push_bytes_total "));
    assert!(pushed.unwrap().parse::<f64>().unwrap() > 0.0);
}
