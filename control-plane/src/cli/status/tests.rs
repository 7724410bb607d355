use super::*;

fn fleet() -> FleetView {
    serde_json::from_value(serde_json::json!({
        "version": "0.1.0", "instance": "00000000000000ff", "epoch": 42, "period_ms": 500,
        "uptime_ms": 125_000, "ready": true, "not_ready": [],
        "discovery": {"source": "fleet.yaml", "current": true, "errors": [], "services": 1,
            "endpoints": 2, "loads": 1, "refusals": 0},
        "services": [{"name": "llm", "arrival_rate": 12.5, "mean_service_ms": 900,
            "proxies_live": 1, "endpoints": [
            {"address": "127.0.0.1:8001", "node": "node-a", "gpus": ["0"],
                "gpu_type": "NVIDIA A100-SXM4-80GB", "weight": 10_000, "type_weight": 10_000,
                "share": 0.625, "traffic_share": 1.0, "gate": 1.0, "hard": "up", "reasons": [], "held": null,
                "in_flight": 3, "slots": 8, "success": 1.0, "memory_free": 0.4, "age_ms": 120,
                "outcomes": {"ok": 1, "busy": 0, "broken": 0, "cancelled": 0, "ttft_mean_ms": 40}},
            {"address": "127.0.0.1:8002", "node": null, "gpus": [], "gpu_type": null,
                "weight": 6_000, "type_weight": 10_000, "share": 0.375, "traffic_share": 0.0, "gate": 0.0, "hard": "down",
                "reasons": [{"reason": "power_cap", "value": 0.9, "gpu": null, "measured": null},
                    {"reason": "xid_fatal", "value": 0.0, "gpu": "GPU-1", "measured": 79.0}],
                "held": null, "in_flight": null, "slots": null, "success": null,
                "memory_free": null, "age_ms": null,
                "outcomes": {"ok": 0, "busy": 0, "broken": 0, "cancelled": 0, "ttft_mean_ms": null}}
        ]}],
        "nodes": [{"node": "node-a", "part": "", "state": "reporting", "age_ms": 120,
            "interval_ms": 500, "driver": "ok", "driver_version": "580.95", "driver_detail": "",
            "reporter_version": "0.1.0", "boot_id": "b", "sequence": 9, "accepted": 9,
            "refused": 0, "gpus_expected": null, "workloads": 1, "cpu_use": 0.25,
            "gpus": [{"index": 0, "uuid": "GPU-0", "name": "NVIDIA L4", "state": "ok"}]}],
        "proxies": [{"proxy_id": "envoy-1", "filter_version": "0.1.0", "services": [],
            "config": "ok", "config_error": null, "rung": 0, "connected_ms": 90_000,
            "heard_ms": 300, "in_flight": 3}],
        "alarms": [],
    }))
    .unwrap()
}

fn printed(fleet: &FleetView) -> String {
    let mut out = Vec::new();
    print(fleet, &mut out, Colours::Off).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn one_line_tells_everything_about_an_endpoint() {
    let expected = "\
tidegate 0.1.0  instance 00000000000000ff  epoch 42  period 500 ms  up 2m05s  12.5 requests/s

SERVICE  ENDPOINT        GPU                WEIGHT  SHARE   GATE  IN FLIGHT  SLOTS  AGE    NODE    WHY
llm      127.0.0.1:8001  A100-SXM4-80GB #0  10000   100.0%  1.00  3          8      120ms  node-a
llm      127.0.0.1:8002  -                  6000    0.0%    down  -          -      -      -       xid_fatal (79), power_cap

NODE    STATE      AGE    DRIVER     GPUS    REPORTS             REPORTER
node-a  reporting  120ms  ok 580.95  1/1 ok  9 taken, 0 refused  0.1.0

PROXY    CONFIG  RUNG  IN FLIGHT  HEARD  FILTER  SERVICES
envoy-1  ok      0     3          300ms  0.1.0   all
";
    assert_eq!(printed(&fleet()), expected);
}

#[test]
fn troubles_make_the_fleet_degraded() {
    assert!(troubles(&fleet()).is_empty(), "one broken GPU among others is no trouble");
    type Change = fn(&mut FleetView);
    let cases: [(Change, &str); 5] = [
        (|f| f.not_ready.push("stopping".into()), "not ready: stopping"),
        (
            |f| {
                f.discovery.current = false;
                f.discovery.errors.push("version: 2 is outside 1..=1".into());
            },
            "discovery file refused: version: 2 is outside 1..=1",
        ),
        (|f| f.services[0].endpoints[0].gate = 0.0, "llm: no endpoint takes requests"),
        (
            |f| f.proxies[0].config_error = Some("services: is missing".into()),
            "envoy-1: configuration refused: services: is missing",
        ),
        (
            |f| {
                let (kind, about) = ("node_suspect".into(), "node-a".into());
                f.alarms.push(crate::admin::view::AlarmView { kind, about });
            },
            "node_suspect: node-a",
        ),
    ];
    for (change, expected) in cases {
        let mut fleet = fleet();
        change(&mut fleet);
        assert_eq!(troubles(&fleet), [expected]);
        assert!(printed(&fleet).contains(&format!("! {expected}\n")));
    }
}

#[test]
fn spans_are_short() {
    for (ms, expected) in [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1.0s"),
        (59_999, "59.9s"),
        (60_000, "1m00s"),
        (3_599_999, "59m59s"),
        (3_600_000, "1h00m"),
        (90_000_000, "25h00m"),
    ] {
        assert_eq!(span(ms), expected, "{ms}");
    }
}
