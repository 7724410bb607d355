use alloc::{
    string::{String, ToString},
    vec,
    vec::Vec,
};

use serde_json::json;

use super::*;

fn parsed(json: serde_json::Value) -> Result<Config, Vec<String>> {
    let value: Value = serde_json::from_value(json).unwrap();
    parse(&value).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn service(name: &str) -> serde_json::Value {
    json!({"name": name, "match": {"clusters": ["llm"]}})
}

#[test]
fn defaults_fill_a_short_configuration() {
    let config = parsed(json!({"version": 1, "services": [service("llm")]})).unwrap();
    let expected = Config {
        version: 1,
        mode: Mode::Enforce,
        control_plane: ControlPlane {
            cluster: "tidegate_control_plane".into(),
            authority: "tidegate-control-plane".into(),
        },
        services: vec![ServiceConfig {
            name: "llm".into(),
            matcher: Matcher { clusters: vec!["llm".into()], ..Matcher::default() },
            policy: Policy::LiSlots,
            retries: 2,
            slow_start: Span::secs(60),
            existing_list: ExistingList::Replace,
            mode: Mode::Enforce,
        }],
    };
    assert_eq!(config, expected);
}

#[test]
fn every_field_is_read() {
    let config = parsed(json!({
        "version": 1, "mode": "observe",
        "control_plane": {"cluster": "outbound|9000||cp.ns", "authority": "cp.ns:9000"},
        "services": [{
            "name": "llm-1", "match": {"hosts": ["llm.example"], "path_prefixes": ["/v1/"]},
            "policy": "free_memory", "retries": 5, "slow_start_ms": 600_000,
            "existing_list": "reorder", "mode": "enforce"
        }]
    }))
    .unwrap();
    assert_eq!(config.mode, Mode::Observe);
    assert_eq!(config.control_plane.authority, "cp.ns:9000");
    let service = &config.services[0];
    assert_eq!(service.policy, Policy::FreeMemory);
    assert_eq!(service.retries, 5);
    assert_eq!(service.slow_start, Span::ms(600_000));
    assert_eq!(service.existing_list, ExistingList::Reorder);
    assert_eq!(service.mode, Mode::Enforce);
    assert_eq!(service.matcher.path_prefixes, ["/v1/"]);
}

#[test]
fn a_service_without_a_mode_takes_that_of_the_filter() {
    let mut with_null = service("b");
    with_null["mode"] = serde_json::Value::Null;
    let config =
        parsed(json!({"version": 1, "mode": "observe", "services": [service("a"), with_null]}))
            .unwrap();
    assert!(config.services.iter().all(|s| s.mode == Mode::Observe));
}

#[test]
fn numbers_at_and_over_their_bounds() {
    let with = |key: &str, value: u64| {
        let mut s = service("llm");
        s[key] = value.into();
        parsed(json!({"version": 1, "services": [s]}))
    };
    assert!(with("retries", 0).is_ok());
    assert!(with("retries", 5).is_ok());
    assert_eq!(with("retries", 6).unwrap_err(), ["services[0].retries: 6 is outside 0..=5"]);
    assert!(with("slow_start_ms", 600_000).is_ok());
    assert_eq!(with("slow_start_ms", 600_001).unwrap_err().len(), 1);
}

#[test]
fn version_must_be_there_and_known() {
    assert_eq!(parsed(json!({"services": [service("a")]})).unwrap_err().len(), 1);
    let errors = parsed(json!({"version": 2, "services": [service("a")]})).unwrap_err();
    assert_eq!(errors, ["version: 2 is outside 1..=1"]);
}

#[test]
fn services_at_and_over_their_number() {
    let services = |n: usize| {
        let list: Vec<_> = (0..n).map(|i| service(&format!("s{i}"))).collect();
        parsed(json!({"version": 1, "services": list}))
    };
    assert!(services(SERVICES_MAX).is_ok());
    assert!(services(SERVICES_MAX + 1).is_err());
    assert!(services(0).is_err());
}

#[test]
fn a_name_may_stand_once() {
    let errors =
        parsed(json!({"version": 1, "services": [service("a"), service("b"), service("a")]}))
            .unwrap_err();
    assert_eq!(errors, ["services[2].name: \"a\" names more than one service"]);
}

#[test]
fn names_are_label_values() {
    let with = |name: &str| parsed(json!({"version": 1, "services": [service(name)]}));
    for good in ["a", "llm-7b.v2_x", &"x".repeat(64)] {
        assert!(with(good).is_ok(), "{good}");
    }
    for bad in ["", "A", "a b", "a;b", "ä", &"x".repeat(65)] {
        assert!(with(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_service_needs_a_matcher() {
    for matcher in [json!({}), json!({"clusters": [], "hosts": [], "path_prefixes": []})] {
        let errors = parsed(json!({"version": 1, "services": [{"name": "a", "match": matcher}]}))
            .unwrap_err();
        assert_eq!(
            errors,
            ["services[0].match: needs at least one entry in clusters, hosts or path_prefixes"]
        );
    }
}

#[test]
fn a_path_prefix_starts_with_a_slash() {
    let errors = parsed(json!({"version": 1, "services": [
        {"name": "a", "match": {"path_prefixes": ["/v1", "v2"]}}]}))
    .unwrap_err();
    assert_eq!(errors, ["services[0].match.path_prefixes[1]: must start with `/`"]);
}

#[test]
fn all_errors_come_at_once() {
    let errors = parsed(json!({"version": 1, "mode": "off", "extra": 1, "services": [
        {"name": "a", "match": {"clusters": ["c"]}, "retries": -1, "policy": "best"}]}))
    .unwrap_err();
    for part in ["mode", "extra", "services[0].retries", "services[0].policy"] {
        assert!(errors.iter().any(|e| e.starts_with(part)), "{part} in {errors:?}");
    }
}

#[test]
fn the_schema_names_every_field() {
    let schema = serde_json::to_string(&shape().json_schema("Tidegate filter")).unwrap();
    for name in [
        "version",
        "mode",
        "control_plane",
        "cluster",
        "authority",
        "services",
        "name",
        "match",
        "clusters",
        "hosts",
        "path_prefixes",
        "policy",
        "retries",
        "slow_start_ms",
        "existing_list",
    ] {
        assert!(schema.contains(&format!("\"{name}\"")), "{name}");
    }
}
