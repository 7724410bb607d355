//! The plugin configuration: what is shipped is valid, and refusals are readable.

use std::path::Path;
use tidegate_filter::settings::{self, SETTINGS_BYTES_MAX};

/// A path in the folder of the standalone configuration.
fn standalone(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../istio/standalone").join(name)
}

/// The configuration inside `envoy.yaml`: the lines indented below `value: |`.
fn shipped() -> String {
    let text = std::fs::read_to_string(standalone("envoy.yaml")).unwrap();
    let mut lines = text.lines().skip_while(|line| line.trim() != "value: |");
    let indent = |line: &str| line.len() - line.trim_start().len();
    let at = indent(lines.next().expect("the inline configuration"));
    lines.take_while(|line| indent(line) > at).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shipped_configuration_is_valid() {
    let config = settings::read(shipped().as_bytes()).unwrap();
    assert_eq!(config.services[0].name, "llm");
    assert_eq!(config.control_plane.authority, "tidegate-control-plane");
}

#[test]
fn all_errors_stand_in_one_line() {
    let text = r#"{"version":1,"services":[{"name":"LLM","match":{},"retries":9}]}"#;
    let error = settings::read(text.as_bytes()).unwrap_err();
    for part in ["services[0].name", "services[0].match", "services[0].retries: 9", "0..=5"] {
        assert!(error.contains(part), "{part} is missing in {error}");
    }
    assert!(!error.contains('\n'));
}

#[test]
fn strange_bytes_are_refused() {
    for bytes in [&b""[..], b"{", b"\xff\xfe", b"[]", b"null", &b"[".repeat(100_000)] {
        assert!(settings::read(bytes).is_err());
    }
    // 4000 unknown keys: the text of their errors is cut, on a character.
    let keys: Vec<String> = (0..4_000).map(|i| format!("\"ключ{i}\":1")).collect();
    let error = settings::read(format!("{{{}}}", keys.join(",")).as_bytes()).unwrap_err();
    assert!(error.len() < 2_100, "{}", error.len());
}

#[test]
fn size_at_the_limit_and_one_over() {
    let mut text = shipped();
    text.push_str(&" ".repeat(SETTINGS_BYTES_MAX - text.len()));
    assert!(settings::read(text.as_bytes()).is_ok());
    text.push(' ');
    let error = settings::read(text.as_bytes()).unwrap_err();
    assert_eq!(error, "longer than 262144 bytes");
}

#[test]
fn the_fingerprint_is_of_what_is_asked_of_the_control_plane() {
    let of = |text: &str| settings::fingerprint(&settings::read(text.as_bytes()).unwrap());
    let base = shipped();
    assert_eq!(of(&base), of(&base.replace("\"retries\": 2", "\"retries\": 1")));
    assert_ne!(of(&base), of(&base.replace("\"name\": \"llm\"", "\"name\": \"other\"")));
    assert_ne!(of(&base), of(&base.replace("tidegate-control-plane", "another")));
}
