use std::collections::BTreeSet;

use super::*;
use crate::testing;

async fn text() -> String {
    let core = testing::core("", &["1.1.1.1:1", "1.1.1.2:1"]);
    core.step(Cause::Period);
    text_of(&core).unwrap()
}

#[test]
fn names_are_unique_and_in_base_units_with_help() {
    let mut seen = BTreeSet::new();
    for name in Name::ALL {
        let text = name.as_str();
        assert!(seen.insert(text), "{text} twice");
        assert!(text.starts_with("tidegate_"), "{text}");
        assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{text}");
        assert!(!text.ends_with("_total"), "{text}: the encoder adds it");
        for unit in ["_ms", "_percent", "_bp", "_mib", "_kb"] {
            assert!(!text.ends_with(unit), "{text} is in no base unit");
        }
        assert!(name.help().len() > 10, "{text} has no help");
    }
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_exposed_once_and_every_line_parses() {
    let text = text().await;
    assert!(text.ends_with("# EOF\n"), "the end of an OpenMetrics text");
    for name in Name::ALL {
        let help = format!("# HELP {} {}", name.as_str(), name.help());
        assert_eq!(text.lines().filter(|l| l.starts_with(&help)).count(), 1, "{help}");
        let kind = match name.kind() {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        let declared = format!("# TYPE {} {kind}", name.as_str());
        assert_eq!(text.lines().filter(|l| **l == declared).count(), 1, "{declared}");
    }
    let mut series = BTreeSet::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (labels, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(series.insert(labels), "{labels} twice");
        let name = labels.split('{').next().unwrap().trim_end_matches("_total");
        assert!(Name::ALL.iter().any(|n| n.as_str() == name), "{name} is not in the enum");
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_have_their_series() {
    let text = text().await;
    for expected in [
        "tidegate_endpoint_weight{service=\"llm\",endpoint=\"1.1.1.1:1\"} 10000.0",
        "tidegate_endpoint_gate_ratio{service=\"llm\",endpoint=\"1.1.1.2:1\"} 1.0",
        "tidegate_endpoint_outcomes_total{service=\"llm\",endpoint=\"1.1.1.1:1\",outcome=\"ok\"} 0.0",
        "tidegate_reports_rejected_total{reason=\"too_fast\"} 0.0",
        "tidegate_streams{kind=\"watch\"} 0.0",
        "tidegate_ready 1.0",
        "tidegate_snapshot_epoch 1.0",
    ] {
        assert!(text.lines().any(|l| l == expected), "{expected} is missing in\n{text}");
    }
    assert!(!text.contains("tidegate_endpoint_in_flight{"), "unknown is no series");
}
