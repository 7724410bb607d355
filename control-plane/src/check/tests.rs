use super::*;

fn checked(content: &str, kind: Option<FileKind>) -> (Option<FileKind>, Vec<String>) {
    let report = check("f", content, kind);
    (report.kind, report.errors)
}

const FILTER: &str = r#"{"version":1,"services":[{"name":"llm","match":{"clusters":["llm"]}}]}"#;

#[test]
fn kind_is_found_out() {
    for (content, expected) in [
        (FILTER, FileKind::Filter),
        (
            "version: 1\nlisten: {grpc: \"127.0.0.1:1\"}\ndiscovery: {file: f}",
            FileKind::ControlPlane,
        ),
        ("version: 1\nnode: node-a", FileKind::Reporter),
        ("version: 1\nworkloads: []", FileKind::Workloads),
        ("version: 1\nservices: [{name: llm, endpoints: []}]", FileKind::Fleet),
        ("version: 1\nservices: []", FileKind::Fleet),
        ("apiVersion: a\nkind: WasmPlugin\nspec: {pluginConfig: {}}", FileKind::Embedded),
    ] {
        assert_eq!(checked(content, None).0, Some(expected), "{content}");
    }
}

#[test]
fn good_files_have_no_errors() {
    for (content, kind) in [
        (FILTER, FileKind::Filter),
        ("version: 1\ndiscovery: {file: fleet.yaml}", FileKind::ControlPlane),
        (
            "version: 1\nservices: [{name: llm, endpoints: [{address: \"1.1.1.1:80\"}]}]",
            FileKind::Fleet,
        ),
    ] {
        assert_eq!(checked(content, None), (Some(kind), Vec::new()), "{content}");
    }
}

#[test]
fn all_errors_of_each_kind_are_named() {
    let table: [(&str, &[&str]); 5] = [
        (
            r#"{"version":2,"mode":"on","services":[{"name":"A B","match":{},"retries":6}]}"#,
            &[
                "version: 2 is outside 1..=1",
                "mode: \"on\" is outside one of enforce, observe",
                "services[0].name: \"A B\" is outside name of 1..=64 bytes from a-z, 0-9, `.`, `_`, `-`",
                "services[0].match",
                "services[0].retries: 6 is outside 0..=5",
            ],
        ),
        (
            "version: 1\nperiod_ms: 5001\ndiscovery: {file: 7, pol_ms: 1}\nlimits: {nodes: many}",
            &[
                "period_ms: 5001 is outside 100..=5000",
                "discovery.file: 7 is not text of 1..=4096 bytes",
                "discovery.pol_ms: is not a known key; did you mean `poll_ms`",
                "limits.nodes: \"many\" is not whole number in 1..=100000",
            ],
        ),
        (
            "version: 1\nservices: [{name: llm, endpoints: [{address: x}, {node: a}]}]",
            &[
                "services[0].endpoints[0].address: \"x\" is outside an address ip:port",
                "services[0].endpoints[1].address: is missing; expected an address ip:port",
            ],
        ),
        ("version: 1\nnode: node-a\ninterval_ms: 1", &["interval_ms: 1 is outside"]),
        (
            "version: 1\nworkloads: [{endpoint: x, service: llm, gpus: []}]",
            &["workloads[0].endpoint: \"x\" is outside", "workloads[0].gpus: "],
        ),
    ];
    for (content, expected) in table {
        let (_, errors) = checked(content, None);
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    }
}

#[test]
fn file_of_no_kind_says_which_there_are() {
    let (kind, errors) = checked("a: 1", None);
    assert_eq!(kind, None);
    assert_eq!(
        errors,
        ["is none of the known kinds; name it with --kind \
          filter|control-plane|reporter|workloads|fleet|embedded"]
    );
    assert!(!checked("", None).1.is_empty());
}

#[test]
fn named_kind_is_believed() {
    let (kind, errors) = checked("version: 1\nservices: []", Some(FileKind::ControlPlane));
    assert_eq!(kind, Some(FileKind::ControlPlane));
    assert!(errors.iter().any(|e| e.starts_with("discovery.file: is missing")), "{errors:?}");
}

#[test]
fn broken_syntax_is_one_error() {
    for content in ["{\"a\": ", "a: [1", "a: 1\na: 2"] {
        let (_, errors) = checked(content, Some(FileKind::Filter));
        assert_eq!(errors.len(), 1, "{content}: {errors:?}");
        assert!(errors[0].starts_with("is not "), "{errors:?}");
    }
}

#[test]
fn configuration_inside_a_plugin_is_checked_with_its_path() {
    let plugin = "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nspec:\n  pluginConfig:\n    \
                  version: 1\n    services: [{name: llm, match: {clusters: [llm]}, retries: 9}]\n";
    let (_, errors) = checked(plugin, None);
    assert_eq!(errors, ["spec.pluginConfig: services[0].retries: 9 is outside 0..=5"]);
}

#[test]
fn configuration_inside_envoy_is_checked_with_its_path() {
    let envoy = |json: &str| {
        format!(
            "static_resources:\n  listeners:\n  - filter:\n      configuration:\n        \
             \"@type\": type.googleapis.com/google.protobuf.StringValue\n        value: '{json}'\n"
        )
    };
    let good = checked(&envoy(FILTER), None);
    assert_eq!(good, (Some(FileKind::Embedded), Vec::new()));
    let bad = checked(&envoy(&FILTER.replace("\"version\":1", "\"version\":3")), None).1;
    let path = "static_resources.listeners[0].filter.configuration.value";
    assert_eq!(bad, [format!("{path}: version: 3 is outside 1..=1")]);
    let broken = checked(&envoy("{"), None).1;
    assert!(broken[0].starts_with(&format!("{path}: is not JSON")), "{broken:?}");
}

#[test]
fn every_document_of_a_file_is_looked_at() {
    let two = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: e/v1\n\
               kind: WasmPlugin\nspec: {pluginConfig: {version: 2, services: []}}\n";
    let (kind, errors) = checked(two, None);
    assert_eq!(kind, Some(FileKind::Embedded));
    assert!(errors[0].starts_with("document 2: spec.pluginConfig: version: 2"), "{errors:?}");
    let none = checked("apiVersion: v1\nkind: Service", None).1;
    assert_eq!(none, ["holds no configuration of Tidegate"]);
}

#[test]
fn files_of_a_config_map_are_checked_by_their_kind() {
    let map = |content: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  notes.txt: hello\n  cp.yaml: |\n    version: 1\n    \
             {content}\n    discovery: {{file: fleet.yaml}}\n"
        )
    };
    assert_eq!(checked(&map("period_ms: 500"), None), (Some(FileKind::Embedded), Vec::new()));
    let bad = checked(&map("period_ms: 50"), None).1;
    assert_eq!(bad, ["data.cp.yaml: period_ms: 50 is outside 100..=5000"]);
}

#[test]
fn deep_nesting_is_no_trouble() {
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let _ = checked(&format!("apiVersion: v1\nkind: K\nspec: {deep}"), None);
    let _ = checked(&format!("{{\"kind\":1,\"apiVersion\":{deep}}}"), None);
}

proptest::proptest! {
    /// Any text is checked to the end.
    #[test]
    fn any_text_is_checked(text in "[a-z0-9:{}\\[\\], \\n\"-]{0,80}") {
        for kind in FileKind::value_variants().iter().copied().map(Some).chain([None]) {
            let _ = check("f", &text, kind);
        }
    }
}
