//! Which package may depend on which. The order of the house is held here, not by habit.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{accepted, files_below, root, run, text};

/// Packages that only tests, demo and benches use; anyone's tests may use them.
const TOOLS_OF_TESTS: &[&str] = &["tidegate-fake-nvml", "tidegate-model-server"];

/// Everything of ours that a package may depend on. The filter is nobody's dependency: it reaches others
/// as a wasm file.
fn ours(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        "tidegate-strict" | "tidegate-proto" | "tidegate-xtask" => &[],
        "tidegate-policy" | "tidegate-reporter-config" => &["tidegate-strict"],
        "tidegate-weighting" => &["tidegate-policy"],
        "tidegate-sim" => &["tidegate-policy", "tidegate-strict", "tidegate-weighting"],
        "tidegate-filter" => &["tidegate-policy", "tidegate-proto", "tidegate-strict"],
        "tidegate-control-plane" => &[
            "tidegate-policy",
            "tidegate-proto",
            "tidegate-reporter-config",
            "tidegate-strict",
            "tidegate-weighting",
        ],
        "tidegate-gpu-reporter" => {
            &["tidegate-proto", "tidegate-reporter-config", "tidegate-strict"]
        }
        "tidegate-tests"
        | "tidegate-bench"
        | "tidegate-empty-filter"
        | "tidegate-fake-nvml"
        | "tidegate-model-server" => &[
            "tidegate-control-plane",
            "tidegate-fake-nvml",
            "tidegate-gpu-reporter",
            "tidegate-model-server",
            "tidegate-policy",
            "tidegate-proto",
            "tidegate-reporter-config",
            "tidegate-sim",
            "tidegate-strict",
            "tidegate-tests",
            "tidegate-weighting",
        ],
        _ => return None,
    })
}

/// Packages whose outside dependencies are few on purpose: they are compiled into every proxy, or decide
/// without reading a clock or a file.
fn others(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        "tidegate-strict" => &["serde"],
        "tidegate-policy" | "tidegate-weighting" => &["libm"],
        "tidegate-filter" => &["log", "prost", "proxy-wasm", "serde_json"],
        "tidegate-reporter-config" => &[],
        _ => return None,
    })
}

/// Features of the wire: who talks, and who only decodes.
fn wire_features(package: &str) -> Option<&'static [&'static str]> {
    Some(match package {
        "tidegate-filter" => &[],
        "tidegate-control-plane" => &["server"],
        "tidegate-gpu-reporter" => &["client"],
        _ => return None,
    })
}

#[derive(Clone, Debug)]
struct Arrow {
    from: String,
    to: String,
    /// Used by the package's tests alone.
    dev: bool,
    features: Vec<String>,
}

fn arrows(metadata: &Value) -> Result<Vec<Arrow>> {
    let mut arrows = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let from = package["name"].as_str().context("name")?;
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let features = dependency["features"].as_array().context("features")?;
            arrows.push(Arrow {
                from: from.into(),
                to: dependency["name"].as_str().context("name")?.into(),
                dev: dependency["kind"].as_str() == Some("dev"),
                features: features.iter().filter_map(Value::as_str).map(String::from).collect(),
            });
        }
    }
    Ok(arrows)
}

/// What is wrong with an arrow.
fn refusal(arrow: &Arrow) -> Option<String> {
    let Arrow { from, to, .. } = arrow;
    let Some(allowed) = ours(from) else {
        return Some(format!("{from} has no row in arrows.rs"));
    };
    if ours(to).is_none() {
        let few = others(from).filter(|_| !arrow.dev)?;
        return (!few.contains(&to.as_str()))
            .then(|| format!("{from} depends on {to}, but outside only on {few:?}"));
    }
    let by_tests = arrow.dev && TOOLS_OF_TESTS.contains(&to.as_str());
    if !by_tests && !allowed.contains(&to.as_str()) {
        return Some(format!("{from} depends on {to}, but of ours only on {allowed:?}"));
    }
    let features = wire_features(from).filter(|_| to == "tidegate-proto" && !arrow.dev)?;
    (arrow.features != features)
        .then(|| format!("{from} takes the wire with {:?}, not {features:?}", arrow.features))
}

#[test]
fn only_allowed_arrows_exist() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--offline"]).current_dir(root());
    let output = run(&mut cargo)?;
    accepted(&output)?;
    let arrows = arrows(&serde_json::from_slice(&output.stdout)?)?;
    let mut seen = BTreeMap::new();
    for arrow in &arrows {
        *seen.entry(arrow.from.as_str()).or_insert(0) += 1;
    }
    ensure!(seen.contains_key("tidegate-filter"), "no filter in {seen:?}");
    let refused: Vec<String> = arrows.iter().filter_map(refusal).collect();
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}

#[test]
fn forbidden_arrows_are_refused() {
    let arrow = |from: &str, to: &str, dev, features: &[&str]| {
        let features = features.iter().map(ToString::to_string).collect();
        refusal(&Arrow { from: from.into(), to: to.into(), dev, features })
    };
    for (from, to) in [
        ("tidegate-policy", "tidegate-proto"),
        ("tidegate-tests", "tidegate-filter"),
        ("tidegate-weighting", "tidegate-control-plane"),
        ("tidegate-xtask", "tidegate-strict"),
        ("tidegate-strict", "tidegate-policy"),
        ("tidegate-policy", "rand"),
        ("tidegate-filter", "tokio"),
        ("tidegate-newcomer", "serde"),
    ] {
        assert!(arrow(from, to, false, &[]).is_some(), "{from} → {to}");
    }
    assert!(arrow("tidegate-filter", "tidegate-proto", false, &["client"]).is_some());
    assert!(arrow("tidegate-filter", "tidegate-proto", false, &[]).is_none());
    // The reporter's own tests may load the simulated driver; the reporter itself may not.
    assert!(arrow("tidegate-gpu-reporter", "tidegate-fake-nvml", true, &[]).is_none());
    assert!(arrow("tidegate-gpu-reporter", "tidegate-fake-nvml", false, &[]).is_some());
}

/// Lines of code in which every one of `words` occurs somewhere in the file.
fn names_all(code: &str, words: &[&str]) -> bool {
    let lines: Vec<&str> =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    words.iter().all(|word| lines.iter().any(|line| line.contains(word)))
}

/// Files that may know both; tests compare what one says with what the other reads.
fn is_wire(path: &str) -> bool {
    path.ends_with("/wire.rs") || path.contains("/wire/") || path.ends_with("/tests.rs")
}

const SHIPPED: &[&str] = &["filter", "control-plane", "gpu-reporter"];

fn shipped_code() -> Vec<String> {
    let files = SHIPPED.iter().flat_map(|folder| files_below(folder));
    files.filter(|path| path.ends_with(".rs") && path.contains("/src/")).collect()
}

#[test]
fn only_wire_files_know_messages_and_decisions() -> Result<()> {
    for path in shipped_code().iter().filter(|path| !is_wire(path)) {
        let code = text(path)?;
        for domain in ["tidegate_policy", "tidegate_weighting"] {
            let both = names_all(&code, &["tidegate_proto", domain]);
            ensure!(!both, "{path} names tidegate_proto and {domain}; only a wire.rs may");
        }
    }
    Ok(())
}

#[test]
fn only_the_host_file_calls_the_host() -> Result<()> {
    for path in files_below("filter").iter().filter(|path| path.ends_with(".rs")) {
        let calls = names_all(&text(path)?, &["hostcalls"]);
        ensure!(!calls || path == "filter/src/host.rs", "{path} names hostcalls");
    }
    Ok(())
}

#[test]
fn comments_do_not_count_as_names() {
    assert!(!names_all("//! hostcalls\n// hostcalls\nuse x;", &["hostcalls"]));
    assert!(names_all("use a;\nuse hostcalls::b;", &["hostcalls"]));
    assert!(!names_all("use tidegate_proto::v1;", &["tidegate_proto", "tidegate_policy"]));
}
