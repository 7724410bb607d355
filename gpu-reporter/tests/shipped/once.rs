//! What an operator sees who runs `--once` on a node.

use crate::rig::{healthy, once, once_json};
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn example() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fake-nvml/examples/eight-gpus.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_table_tells_unknown_unsupported_and_zero_apart() {
    let output = once("table", &example(), &[]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "one GPU is lost");
    let row = |index: usize| {
        let start = format!(" {index} ");
        table.lines().find(|line| line.starts_with(&start)).unwrap().to_owned()
    };
    assert!(table.contains("7 of 8 GPUs fine"), "{table}");
    let words = |index| row(index).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Index, name in two words, state, SM, memory, encoder, decoder.
    assert_eq!(words(5)[3..8], ["ok", "22", "9", "n/s", "n/s"]);
    assert_eq!(words(2)[3..8], ["ok", "0", "0", "0", "0"]);
    assert_eq!(words(7)[..4], ["7", "-", "lost", "-"]);
    assert!(row(3).contains("hw slowdown, hw thermal"), "{}", row(3));
    assert!(row(4).contains("20.0 / 22.4"), "{}", row(4));
    assert!(table.contains("GPU 7 is lost: GPU_IS_LOST (15)"));
    assert!(table.contains("temp °C") && table.contains("memory GiB") && table.contains("power W"));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_healthy_node_exits_with_zero() {
    let output = once("fine", &healthy(2), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn fewer_gpus_than_expected_are_trouble() {
    let output = once("few", &healthy(2), &["--expected-gpus", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("2 of 2 GPUs fine, 3 expected"));
}

#[test]
fn no_driver_is_said_plainly() {
    let mut scenario = healthy(1);
    scenario["driver"]["init_rc"] = json!(9);
    let output = once("no-driver", &scenario, &[]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.starts_with("no NVIDIA driver on this node: nvmlInit_v2: DRIVER_NOT_LOADED (9)"));
    assert!(error.contains("--nvml-lib"), "{error}");
}

#[test]
fn a_mismatch_says_what_to_do() {
    let mut scenario = healthy(1);
    scenario["driver"]["init_rc"] = json!(18);
    let output = once("mismatch-once", &scenario, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("reboot the node"));
}

#[test]
fn a_hung_gpu_does_not_keep_the_sample() {
    let mut scenario = healthy(2);
    scenario["gpus"][1]["hang"] = json!(true);
    let more = ["--hung-call-ms", "200", "--slow-call-ms", "100"];
    let sample = once_json("hung-once", &scenario, &more);
    assert_eq!(sample["gpus"][0]["state"], "ok");
    assert_eq!(sample["gpus"][1]["state"], "hung");
}

#[test]
fn json_has_every_group_with_its_age() {
    let sample = once_json("json", &healthy(1), &[]);
    let gpu = &sample["gpus"][0];
    for group in ["utilization", "memory", "thermal", "power", "clocks", "ecc", "pcie"] {
        assert!(gpu[group]["age_ms"].is_u64(), "{group}: {gpu:#}");
    }
    assert_eq!(sample["driver"]["driver_version"], "580.95.05");
    assert!(sample["host"]["memory_total_bytes"].is_u64());
}

#[test]
fn wrong_settings_are_all_named_at_once() {
    let output = once("usage", &healthy(1), &["--interval-ms", "5", "--listen", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("interval_ms: 5 is outside 100..=10000"), "{error}");
    assert!(error.contains("listen: \"nowhere\" is outside an address ip:port"), "{error}");
}

#[test]
fn environment_wins_over_the_file_and_flags_over_both() {
    let folder = crate::rig::folder("precedence");
    crate::rig::write(&folder.join("scenario.json"), &healthy(1).to_string());
    crate::rig::write(&folder.join("c.yaml"), "version: 1\nnode: from-file\nexpected_gpus: 1\n");
    let run = |more: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate-gpu-reporter"))
            .env_clear()
            .env("TIDEGATE_FAKE_NVML", folder.join("scenario.json"))
            .env("TIDEGATE_NODE", "from-environment")
            .env("TIDEGATE_NVML_LIB", crate::rig::fake_nvml())
            .env("TIDEGATE_CONFIG", folder.join("c.yaml"))
            .args(["--once", "--output", "json"])
            .args(more)
            .output()
            .unwrap();
        let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
        (sample["node"].clone(), sample["driver"]["gpus_expected"].clone())
    };
    assert_eq!(run(&[]), (json!("from-environment"), json!(1)));
    assert_eq!(run(&["--node", "from-flag"]), (json!("from-flag"), json!(1)));
}

#[test]
fn help_names_units_ranges_and_exit_codes() {
    let output = once("help", &healthy(1), &["--help"]);
    let help = text(&output.stdout);
    for part in ["[100..=10000, default: 500]", "TIDEGATE_CONTROL_PLANE", "Exit codes: 0", "--once"]
    {
        assert!(help.contains(part), "{part} not in\n{help}");
    }
}
