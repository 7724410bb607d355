//! What a GPU does not support, answers oddly, or only says in an older way.

use crate::rig::{Received, Rig, healthy, once_json};
use serde_json::{Value, json};
use tidegate_gpu_reporter::nvml::Function;
use tidegate_proto::v1::GpuState;

/// Functions that are asked of one GPU, and the only one without which a GPU cannot be read at all.
fn of_gpus() -> Vec<&'static str> {
    let all = Function::ALL.iter().map(|f| f.name());
    all.filter(|name| name.starts_with("nvmlDevice") && *name != "nvmlDeviceGetCount_v2").collect()
}
const OPENING: &str = "nvmlDeviceGetHandleByIndex_v2";

/// One GPU per function; `spoil` breaks that function on it.
fn one_each(spoil: impl Fn(&str) -> Value) -> Value {
    let gpus: Vec<Value> = of_gpus()
        .iter()
        .map(|name| {
            let mut gpu = spoil(name);
            gpu["uuid"] = json!(format!("GPU-{name}"));
            gpu["processes"] = json!([{"pid": 1}]);
            gpu
        })
        .collect();
    json!({"gpus": gpus})
}

fn check_all_there(code: &str, sample: &Value) {
    let gpus = sample["gpus"].as_array().unwrap();
    let names = of_gpus();
    assert_eq!(gpus.len(), names.len(), "{code}");
    for (gpu, name) in gpus.iter().zip(&names) {
        let uuid = gpu["uuid"].as_str().unwrap();
        let known = [OPENING, "nvmlDeviceGetUUID"].contains(name);
        assert_eq!(uuid.starts_with("GPU-"), !known, "{code} {name}: {uuid}");
    }
}

#[test]
fn no_unsupported_function_hides_a_gpu_or_its_other_figures() {
    let scenario = one_each(|name| json!({"unsupported": [name]}));
    let sample = once_json("unsupported", &scenario, &["--processes"]);
    check_all_there("unsupported", &sample);
    for (gpu, name) in sample["gpus"].as_array().unwrap().iter().zip(of_gpus()) {
        if name == OPENING {
            assert_eq!(gpu["state"], "unknown", "{name}");
            continue;
        }
        assert_eq!(gpu["state"], "ok", "{name}: {gpu:#}");
        let groups = ["utilization", "memory", "thermal", "power", "clocks", "ecc", "pcie"];
        assert!(groups.iter().all(|group| !gpu[group].is_null()), "{name}: {gpu:#}");
    }
}

#[test]
fn no_code_newer_than_the_bindings_hides_a_gpu() {
    for code in 23..=30 {
        let scenario = one_each(|name| json!({"fail": {name: code}}));
        let sample = once_json(&format!("code-{code}"), &scenario, &["--processes"]);
        check_all_there(&code.to_string(), &sample);
        for (gpu, name) in sample["gpus"].as_array().unwrap().iter().zip(of_gpus()) {
            let state = gpu["state"].as_str().unwrap();
            // 28 says that the GPU is gone; a function that is never called here says nothing.
            let expected = match (code, name) {
                (28, _) => ["lost", "ok"].as_slice(),
                (_, OPENING) => &["unknown"],
                _ => &["ok"],
            };
            assert!(expected.contains(&state), "{code} {name}: {state}");
        }
    }
}

#[test]
fn library_functions_may_fail_with_any_code() {
    let functions = Function::ALL.iter().map(|f| f.name());
    for name in functions.filter(|name| name.starts_with("nvmlSystem")) {
        for code in [3, 26, 999] {
            let mut scenario = healthy(1);
            scenario["driver"]["fail"] = json!({name: code});
            let sample = once_json("system", &scenario, &[]);
            assert_eq!(sample["driver"]["status"], "ok", "{name} {code}");
            assert_eq!(sample["gpus"][0]["state"], "ok", "{name} {code}");
        }
    }
}

#[test]
fn older_symbols_stand_in_for_newer_ones() {
    let pairs = [
        ("nvmlDeviceGetTemperatureV", "/thermal/temperature_c", json!(35)),
        ("nvmlDeviceGetCurrentClocksEventReasons", "/clocks/event_reasons", json!(0)),
        ("nvmlDeviceGetMemoryInfo_v2", "/memory/used_bytes", json!(1_u64 << 30)),
    ];
    for (newer, figure, value) in pairs {
        for code in [3, 13, 25, 26] {
            let mut scenario = healthy(1);
            scenario["gpus"][0]["fail"] = json!({newer: code});
            let sample = once_json("older", &scenario, &[]);
            let gpu = &sample["gpus"][0];
            assert_eq!(gpu.pointer(figure), Some(&value), "{newer} {code}");
            assert_eq!(gpu["unsupported"], json!([]), "{newer} {code}");
        }
    }
    // The older form of the memory call knows no reserved part.
    let mut scenario = healthy(1);
    scenario["gpus"][0]["unsupported"] = json!(["nvmlDeviceGetMemoryInfo_v2"]);
    let sample = once_json("older", &scenario, &[]);
    assert_eq!(sample["gpus"][0]["memory"]["reserved_bytes"], Value::Null);
}

#[test]
fn newer_symbols_are_enough_when_older_ones_are_deprecated() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["fail"] = json!({
        "nvmlDeviceGetTemperature": 26, "nvmlDeviceGetCurrentClocksThrottleReasons": 26});
    let sample = once_json("newer", &scenario, &[]);
    assert_eq!(sample["gpus"][0]["thermal"]["temperature_c"], 35);
    assert_eq!(sample["gpus"][0]["clocks"]["event_reasons"], 0);
}

#[test]
fn limits_come_from_the_margin_where_there_are_no_thresholds() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["unsupported"] = json!(["nvmlDeviceGetTemperatureThreshold"]);
    let sample = once_json("margin", &scenario, &[]);
    let thermal = &sample["gpus"][0]["thermal"];
    // 35 °C with 53 to go to 88; slowdown lies 2 beyond, shutdown 7.
    assert_eq!((&thermal["slowdown_c"], &thermal["shutdown_c"]), (&json!(90), &json!(95)));
}

#[test]
fn remapped_rows_come_from_fields_and_retired_pages_from_older_gpus() {
    let rows = ["field:142", "field:143", "field:144", "field:145"];
    let mut scenario = healthy(2);
    for gpu in [0, 1] {
        scenario["gpus"][gpu]["remap"] = json!({"uncorrected": 2, "pending": true});
        scenario["gpus"][gpu]["retired_pages"] = json!(5);
    }
    scenario["gpus"][0]["unsupported"] = json!(["nvmlDeviceGetRemappedRows"]);
    scenario["gpus"][1]["unsupported"] =
        json!(rows.iter().chain(&["nvmlDeviceGetRemappedRows"]).collect::<Vec<_>>());
    let sample = once_json("rows", &scenario, &[]);
    let ecc = |gpu: usize| &sample["gpus"][gpu]["ecc"];
    assert_eq!(ecc(0)["remapped_rows_uncorrected"], 2);
    assert_eq!((&ecc(0)["remap_pending"], &ecc(0)["retired_pages"]), (&json!(true), &Value::Null));
    assert_eq!(ecc(1)["remapped_rows_uncorrected"], Value::Null);
    assert_eq!(ecc(1)["retired_pages"], 5);
}

#[test]
fn pcie_rates_come_from_the_blocking_call_where_there_are_no_counters() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["pcie"] = json!({"tx_mib_s": 3, "rx_mib_s": 2});
    scenario["gpus"][0]["unsupported"] = json!(["field:197", "field:198"]);
    let pcie = &once_json("pcie", &scenario, &[])["gpus"][0]["pcie"];
    // 3 MiB/s = 3,145,728 B/s.
    assert_eq!(pcie["tx_bytes_per_second"], 3_145_728);
    assert_eq!(pcie["rx_bytes_per_second"], 2_097_152);
}

#[test]
fn counters_of_a_gpu_without_ecc_are_unknown_not_zero() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["ecc"] = json!({"enabled": false});
    let sample = once_json("ecc-off", &scenario, &[]);
    let ecc = &sample["gpus"][0]["ecc"];
    assert_eq!((&ecc["enabled"], &ecc["volatile_uncorrected"]), (&json!(false), &Value::Null));
    assert_eq!(sample["gpus"][0]["unsupported"], json!([]));
}

#[test]
fn utilisation_over_a_hundred_is_unknown_and_a_hundred_is_not() {
    let mut scenario = healthy(2);
    scenario["gpus"][0]["utilization"] = json!(100);
    scenario["gpus"][1]["utilization"] = json!(101);
    let sample = once_json("percent", &scenario, &[]);
    assert_eq!(sample["gpus"][0]["utilization"]["sm_percent"], 100);
    assert_eq!(sample["gpus"][1]["utilization"]["sm_percent"], Value::Null);
    assert_eq!(sample["gpus"][1]["utilization"]["memory_percent"], 0);
}

#[test]
fn an_unknown_architecture_is_data() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["architecture"] = json!(11);
    let sample = once_json("architecture", &scenario, &[]);
    assert_eq!(sample["gpus"][0]["architecture"], "unknown-11");
    assert_eq!(sample["gpus"][0]["state"], "ok");
}

#[test]
fn a_gpu_in_instances_has_no_utilisation_and_names_them() {
    for instances in [1, 3, 7] {
        let mut scenario = healthy(1);
        scenario["gpus"][0]["mig"] = json!(instances);
        scenario["gpus"][0]["utilization"] = json!(50);
        let sample = once_json("mig", &scenario, &[]);
        let gpu = &sample["gpus"][0];
        assert_eq!(gpu["utilization"]["sm_percent"], Value::Null);
        assert_eq!(gpu["state"], "ok");
        assert!(
            gpu["unsupported"]
                .as_array()
                .unwrap()
                .contains(&json!("nvmlDeviceGetUtilizationRates"))
        );
        let list = gpu["mig"]["instances"].as_array().unwrap();
        assert_eq!(list.len(), instances);
        assert_eq!(list[0]["uuid"], "MIG-0-1");
        assert_eq!(
            (&list[0]["gpu_instance_id"], &list[0]["compute_instance_id"]),
            (&json!(7), &json!(0))
        );
        // 80 GiB shared evenly.
        assert_eq!(list[0]["memory_total_bytes"], (80_u64 << 30) / instances as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_may_come_and_go_while_the_reporter_runs() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["utilization"] = json!(50);
    let mut rig = Rig::start("mig-run", scenario, &["--medium-interval-ms", "1000"]).await;
    rig.until_state("GPU-0", GpuState::Ok).await;
    rig.change(|s| s["gpus"][0]["mig"] = json!(2));
    let cut = |r: &Received| r.gpu("GPU-0").mig.as_ref().is_some_and(|m| m.instances.len() == 2);
    rig.until("two instances", cut).await;
    rig.change(|s| s["gpus"][0]["mig"] = json!(0));
    let whole = |r: &Received| {
        r.gpu("GPU-0").mig.as_ref().is_some_and(|m| !m.enabled)
            && r.gpu("GPU-0").utilization.is_some_and(|u| u.sm_percent == Some(50))
    };
    rig.until("whole again, with utilisation", whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_figure_that_was_unsupported_is_asked_again_by_the_slow_tier() {
    let mut scenario = healthy(1);
    scenario["gpus"][0]["unsupported"] = json!(["nvmlDeviceGetPowerUsage"]);
    let mut rig = Rig::start("again", scenario, &["--slow-interval-ms", "1000"]).await;
    let listed = |r: &Received| r.gpu("GPU-0").unsupported == ["nvmlDeviceGetPowerUsage"];
    let received = rig.until("listed", listed).await;
    assert_eq!(received.gpu("GPU-0").power.unwrap().draw_mw, None);
    rig.change(|s| s["gpus"][0]["unsupported"] = json!([]));
    let drawn = |r: &Received| r.gpu("GPU-0").power.is_some_and(|p| p.draw_mw == Some(60_000));
    let received = rig.until("power", drawn).await;
    assert!(received.gpu("GPU-0").unsupported.is_empty());
}
