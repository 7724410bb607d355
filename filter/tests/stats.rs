//! Metric names are distinct, in base form, and fit the label rules of the shipped Envoy configuration.

use std::collections::BTreeSet;
use tidegate_filter::stats::Metric;

#[test]
fn names_are_distinct_and_counters_end_in_total() {
    let names: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
    assert_eq!(names.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        let name = metric.name();
        assert!(name.starts_with("tidegate_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert!(metric.label().is_none() || name.ends_with("_total"), "{name}");
    }
}

#[test]
fn full_names_carry_the_labels() {
    for (metric, service, value, expected) in [
        (
            Metric::Requests,
            Some("llm"),
            "steered",
            "tidegate_requests_total.service=llm.decision=steered",
        ),
        (Metric::Requests, None, "passed", "tidegate_requests_total.decision=passed"),
        (Metric::Rung, Some("a.b"), "", "tidegate_ladder_rung.service=a.b"),
        (Metric::DecodeErrors, None, "malformed", "tidegate_decode_errors_total.reason=malformed"),
        (Metric::Updates, None, "", "tidegate_updates_total"),
    ] {
        assert_eq!(metric.full_name(service, value), expected);
    }
}

#[test]
fn every_label_has_a_rule_in_the_shipped_configuration() {
    let yaml = include_str!("../../istio/standalone/envoy.yaml");
    let labels = Metric::ALL.iter().filter_map(|metric| metric.label()).chain(["service"]);
    for label in labels {
        assert!(yaml.contains(&format!("- tag_name: {label}\n")), "{label}");
    }
}

#[test]
fn every_metric_is_explained() {
    let readme = include_str!("../../istio/standalone/README.md");
    for metric in Metric::ALL {
        assert!(readme.contains(&format!("| `{}` |", metric.name())), "{}", metric.name());
    }
}
