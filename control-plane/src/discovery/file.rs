//! Discovery from a YAML file that people or a tool write.
//!
//! The file is looked at each `poll`; when size or time of change differ, or the last read failed, it
//! is read again, and parsed when the content differs. A file that breaks a rule, cannot be read or is
//! gone changes nothing: the directory in force stays, and log, metric and API say why. Watching by
//! inotify was not taken: a ConfigMap is swapped by symlink and network mounts send no events.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use tidegate_policy::{address, config::is_service_name};
use tidegate_strict::{ConfigError, Need, Node, Shape, Value};

use super::{Directory, DiscoveryStatus, EndpointEntry, ServiceEntry};
use crate::{
    config::{Limits, ReadError, rule},
    text,
};

/// GPUs that one endpoint may use.
const GPUS_PER_ENDPOINT_MAX: usize = 64;
/// A GPU index above this is no index.
const GPU_INDEX_MAX: u64 = 1_023;

/// Reads one discovery file.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn parse(value: &Value, limits: &Limits) -> Result<Directory, Vec<ConfigError>> {
    let directory = tidegate_strict::read(value, |n| read(n, limits))?;
    let errors = broken_rules(&directory, limits);
    if errors.is_empty() { Ok(directory) } else { Err(errors) }
}

/// What may stand in a discovery file.
#[must_use]
pub fn shape(limits: &Limits) -> Shape {
    tidegate_strict::describe(|n| read(n, limits))
}

fn read(n: &mut Node<'_>, limits: &Limits) -> Directory {
    n.int("version", 1..=1, Need::Required, "version of this format");
    let services = n.list("services", 0..=limits.services, "services by name", |n| {
        let name = n.parsed(
            "name",
            "name of 1..=64 bytes from a-z, 0-9, `.`, `_`, `-`",
            Need::Required,
            |s| is_service_name(s).then(|| s.to_owned()),
            "name of the service, as the filter's configuration has it",
        );
        let name = name.unwrap_or_default();
        let endpoints =
            n.list("endpoints", 0..=limits.endpoints_per_service, "its model servers", |n| {
                let address = n.parsed(
                    "address",
                    "an address ip:port",
                    Need::Required,
                    // The filter's own rule: it refuses an update as a whole for one wrong address.
                    address::canonical,
                    "address as Envoy knows it",
                );
                EndpointEntry {
                    address: address.unwrap_or_default(),
                    node: n.optional_text("node", limits.text_bytes, "node that it runs on"),
                    gpus: n.names(
                    "gpus",
                    0..=GPUS_PER_ENDPOINT_MAX,
                    (GPU_INDEX_MAX, limits.text_bytes),
                    "index or UUID of its GPUs on that node",
                ),
                capacity: n.optional_number(
                        "capacity",
                        0.01..=1_000.0,
                        "throughput relative to one A100, where it is known better than by the GPU type",
                    ),
                    draining: n.flag("draining", false, "finish what runs, take nothing new"),
                }
            });
        ServiceEntry { name, endpoints }
    });
    Directory { services }
}

fn broken_rules(directory: &Directory, limits: &Limits) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut names = BTreeSet::new();
    for (s, service) in directory.services.iter().enumerate() {
        if !names.insert(service.name.as_str()) {
            errors.push(rule(
                format!("services[{s}].name"),
                format!("{:?} appears more than once", service.name),
            ));
        }
        let mut addresses = BTreeSet::new();
        for (e, endpoint) in service.endpoints.iter().enumerate() {
            if !addresses.insert(endpoint.address.as_str()) {
                errors.push(rule(
                    format!("services[{s}].endpoints[{e}].address"),
                    format!("{} appears more than once in this service", endpoint.address),
                ));
            }
            if endpoint.node.is_none() && !endpoint.gpus.is_empty() {
                errors.push(rule(
                    format!("services[{s}].endpoints[{e}].gpus"),
                    "needs `node`: an index or UUID is looked up on a node".into(),
                ));
            }
        }
    }
    let total = directory.endpoint_count();
    if total > limits.endpoints {
        let rule_text = format!("{total} endpoints in all is outside 0..={}", limits.endpoints);
        errors.push(rule("services".into(), rule_text));
    }
    errors
}

/// The file, and what is in force from it.
#[derive(Debug)]
pub struct FileDiscovery {
    path: PathBuf,
    limits: Limits,
    seen: Option<(SystemTime, u64)>,
    content: Option<String>,
    status: DiscoveryStatus,
}

impl FileDiscovery {
    #[must_use]
    pub fn new(path: &Path, limits: &Limits) -> Self {
        let status = DiscoveryStatus {
            source: path.display().to_string(),
            errors: vec!["not read yet".into()],
            ..DiscoveryStatus::default()
        };
        Self { path: path.into(), limits: limits.clone(), seen: None, content: None, status }
    }

    /// How discovery stands after the last look.
    #[must_use]
    pub fn status(&self) -> &DiscoveryStatus {
        &self.status
    }

    /// Looks at the file; gives a new directory when there is one.
    pub fn look(&mut self) -> Option<Directory> {
        let mark = std::fs::metadata(&self.path)
            .ok()
            .and_then(|m| m.modified().ok().map(|modified| (modified, m.len())));
        if mark.is_some() && mark == self.seen && mark.is_none_or(|(time, _)| is_settled(time)) {
            return None;
        }
        match self.load() {
            Ok(None) => {
                self.seen = mark;
                None
            }
            Ok(Some(directory)) => {
                self.seen = mark;
                self.status.current = true;
                self.status.errors.clear();
                self.status.loads += 1;
                self.status.services = directory.services.len();
                self.status.endpoints = directory.endpoint_count();
                tracing::info!(
                    source = %self.status.source,
                    services = self.status.services,
                    endpoints = self.status.endpoints,
                    "discovery file in force"
                );
                Some(directory)
            }
            Err(error) => {
                // A file with broken content need not be read again; one that could not be read, does.
                self.seen = if matches!(error, ReadError::File { .. }) { None } else { mark };
                self.refuse(error.lines());
                None
            }
        }
    }

    fn load(&mut self) -> Result<Option<Directory>, ReadError> {
        let bytes_max = u64::try_from(self.limits.discovery_bytes).unwrap_or(u64::MAX);
        let content = text::read_bounded(&self.path, bytes_max)?;
        if self.status.current && self.content.as_ref() == Some(&content) {
            return Ok(None);
        }
        let value = text::yaml(&content)?;
        let directory = parse(&value, &self.limits).map_err(ReadError::Rules)?;
        self.content = Some(content);
        Ok(Some(directory))
    }

    fn refuse(&mut self, errors: Vec<String>) {
        let news = errors != self.status.errors;
        self.status.current = false;
        if news {
            self.status.refusals += 1;
            tracing::warn!(
                source = %self.status.source,
                errors = errors.join("; "),
                services = self.status.services,
                endpoints = self.status.endpoints,
                "discovery file refused; the earlier one stays in force"
            );
        }
        self.status.errors = errors;
    }
}

/// Whether a time of change is old enough that a further change would show as another time.
///
/// Some file systems count in seconds; within two of them the content is compared instead.
fn is_settled(changed: SystemTime) -> bool {
    changed.elapsed().is_ok_and(|age| age >= Duration::from_secs(2))
}

#[cfg(test)]
mod tests;
