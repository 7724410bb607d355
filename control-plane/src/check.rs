//! Checks a configuration file without any other part running.
//!
//! The kind of a file is found out from the keys that only one kind has. Files that carry configurations
//! inside (a WasmPlugin, an EnvoyFilter, an Envoy bootstrap, a ConfigMap) are searched for them, so that
//! what is applied is what is checked. Every document of a YAML file is looked at, and every error is
//! named with path, value and range.

use clap::ValueEnum;
use serde::Serialize;
use tidegate_strict::{ConfigError, Value};

use crate::{
    config::{Config, Limits},
    discovery, text,
};

/// Largest file that is checked, in bytes.
pub const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Depth at which the search for an embedded configuration stops.
const DEPTH_MAX: usize = 64;

/// What a file may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Configuration of the Envoy filter, JSON or YAML
    Filter,
    /// Configuration of the control plane
    ControlPlane,
    /// Configuration of the GPU reporter
    Reporter,
    /// Model servers on a node, for the reporter
    Workloads,
    /// Services and endpoints, for the control plane
    Fleet,
    /// Manifest (WasmPlugin, EnvoyFilter, ConfigMap) or Envoy bootstrap with any of these inside
    Embedded,
}

impl FileKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::ControlPlane => "control-plane",
            Self::Reporter => "reporter",
            Self::Workloads => "workloads",
            Self::Fleet => "fleet",
            Self::Embedded => "embedded",
        }
    }
}

/// What the check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub file: String,
    pub kind: Option<FileKind>,
    pub errors: Vec<String>,
}

/// Checks the content of one file.
#[must_use]
pub fn check(file: &str, content: &str, kind: Option<FileKind>) -> CheckReport {
    let report = |kind, errors| CheckReport { file: file.into(), kind, errors };
    let documents = match read(content) {
        Ok(documents) => documents,
        Err(error) => return report(kind, vec![error]),
    };
    let Some(kind) = kind.or_else(|| documents.iter().find_map(detect)) else {
        let known: Vec<&str> = FileKind::value_variants().iter().map(|k| k.as_str()).collect();
        let error = format!("is none of the known kinds; name it with --kind {}", known.join("|"));
        return report(None, vec![error]);
    };
    let is_stream = documents.len() > 1;
    let mut errors = Vec::new();
    for (i, document) in documents.iter().enumerate() {
        let prefix = if is_stream { format!("document {}: ", i + 1) } else { String::new() };
        errors.extend(errors_in(document, kind).into_iter().map(|e| format!("{prefix}{e}")));
    }
    if kind == FileKind::Embedded && !documents.iter().any(|d| !embedded(d).is_empty()) {
        errors.push("holds no configuration of Tidegate".into());
    }
    report(Some(kind), errors)
}

fn read(content: &str) -> Result<Vec<Value>, String> {
    let trimmed = content.trim_start();
    if trimmed.starts_with('{') {
        return text::json(content).map(|v| vec![v]).map_err(|e| e.to_string());
    }
    serde_saphyr::from_multiple::<Value>(content)
        .map_err(|e| text::syntax("YAML", &e.to_string()).to_string())
}

fn detect(document: &Value) -> Option<FileKind> {
    let has = |key: &str| document.get(key).is_some();
    if has("workloads") && !has("node") {
        Some(FileKind::Workloads)
    } else if has("kind") && has("apiVersion") || has("static_resources") {
        Some(FileKind::Embedded)
    } else if has("listen") && has("discovery") || has("discovery") || has("weighting") {
        Some(FileKind::ControlPlane)
    } else if has("services") {
        let services = document.get("services")?;
        let is_fleet = !has("mode") && !has("control_plane") && !any_has(services, "match");
        Some(if is_fleet { FileKind::Fleet } else { FileKind::Filter })
    } else if has("control_plane") && document.get("control_plane").is_some_and(is_map) {
        Some(FileKind::Filter)
    } else if REPORTER_KEYS.iter().any(|key| has(key)) {
        Some(FileKind::Reporter)
    } else {
        None
    }
}

/// Keys of a reporter's file that no other kind has.
const REPORTER_KEYS: [&str; 5] = ["control_plane", "node", "nvml_lib", "interval_ms", "gpus"];

const fn is_map(value: &Value) -> bool {
    matches!(value, Value::Map(_))
}

fn any_has(list: &Value, key: &str) -> bool {
    matches!(list, Value::List(items) if items.iter().any(|item| item.get(key).is_some()))
}

fn errors_in(document: &Value, kind: FileKind) -> Vec<String> {
    match kind {
        FileKind::Filter => lines(tidegate_policy::config::parse(document), ""),
        FileKind::ControlPlane => lines(Config::parse(document, "".as_ref()), ""),
        FileKind::Reporter => lines(tidegate_reporter_config::parse(document), ""),
        FileKind::Workloads => lines(tidegate_reporter_config::parse_workloads(document), ""),
        FileKind::Fleet => {
            lines(Limits::defaults().and_then(|l| discovery::file::parse(document, &l)), "")
        }
        FileKind::Embedded => embedded(document)
            .into_iter()
            .flat_map(|inside| {
                let errors = inside.config.map(|c| errors_in(&c, inside.kind));
                let errors = errors.unwrap_or_else(|error| vec![error]);
                errors.into_iter().map(move |error| format!("{}: {error}", inside.path))
            })
            .collect(),
    }
}

fn lines<T>(result: Result<T, Vec<ConfigError>>, prefix: &str) -> Vec<String> {
    let errors = result.err().unwrap_or_default();
    errors.iter().map(|e| format!("{prefix}{e}")).collect()
}

/// A configuration inside a document.
struct Inside {
    path: String,
    kind: FileKind,
    config: Result<Value, String>,
}

impl Inside {
    const fn filter(path: String, config: Result<Value, String>) -> Self {
        Self { path, kind: FileKind::Filter, config }
    }
}

fn embedded(document: &Value) -> Vec<Inside> {
    let mut found = Vec::new();
    search(document, "", 0, &mut found);
    if document.get("kind") == Some(&Value::Text("ConfigMap".into()))
        && let Some(Value::Map(files)) = document.get("data")
    {
        found.extend(files.iter().filter_map(|(name, content)| file_in_map(name, content)));
    }
    found
}

/// A file of a ConfigMap, if it is one that Tidegate reads.
fn file_in_map(name: &str, content: &Value) -> Option<Inside> {
    let Value::Text(content) = content else { return None };
    let config = text::yaml(content).ok()?;
    let kind = detect(&config).filter(|kind| *kind != FileKind::Embedded)?;
    Some(Inside { path: format!("data.{name}"), kind, config: Ok(config) })
}

fn search(value: &Value, path: &str, depth: usize, found: &mut Vec<Inside>) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Value::Map(entries) => {
            for (key, inner) in entries {
                let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (key.as_str(), string_value(inner)) {
                    // WasmPlugin: the configuration as an object.
                    ("pluginConfig", _) => found.push(Inside::filter(at, Ok(inner.clone()))),
                    // Envoy: a StringValue with JSON inside.
                    ("configuration", Some(json)) => {
                        let config = text::json(json).map_err(|e| e.to_string());
                        found.push(Inside::filter(format!("{at}.value"), config));
                    }
                    _ => search(inner, &at, depth + 1, found),
                }
            }
        }
        Value::List(items) => {
            for (i, inner) in items.iter().enumerate() {
                search(inner, &format!("{path}[{i}]"), depth + 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
    }
}

fn string_value(value: &Value) -> Option<&str> {
    match (value.get("@type"), value.get("value")) {
        (Some(Value::Text(kind)), Some(Value::Text(text))) if kind.ends_with("StringValue") => {
            Some(text)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
