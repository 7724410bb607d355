//! The configuration of the filter, version 1.
//!
//! One function reads it and describes it, so parser, JSON schema and reference table agree. A
//! configuration is taken whole or not at all: [`parse`] returns every error at once, and the caller
//! keeps the last good one in force.

use alloc::{format, string::String, vec::Vec};

use tidegate_strict::{ConfigError, Need, Node, Shape, Value, describe, read};

use crate::units::Span;

/// Most services; each is a row in the metrics and a table in every worker.
pub const SERVICES_MAX: usize = 64;
/// Most entries of one matcher list.
pub const MATCHERS_MAX: usize = 64;
/// Longest service name; it is a metric label.
pub const SERVICE_NAME_BYTES_MAX: usize = 64;
/// Longest cluster name: Istio's `outbound|65535|subset|host` with a host of 253 bytes fits.
const CLUSTER_BYTES_MAX: usize = 400;
/// Longest DNS name with a port.
const HOST_BYTES_MAX: usize = 260;
/// Longest cluster name and authority of the control plane: the filter hands them to Envoy in a message
/// that must be UTF-8 although it is protobuf, and a longer length is not.
pub const PLANE_BYTES_MAX: usize = 127;
const PATH_BYTES_MAX: usize = 256;
/// Most fixed retries; more than five tries of one request only add load to a fleet in trouble.
const RETRIES_MAX: u64 = 5;
/// Longest slow start; the control plane tells for as long how long an endpoint has been healthy.
pub const SLOW_START_MS_MAX: u64 = 600_000;

const DEFAULT_CLUSTER: &str = "tidegate_control_plane";
const DEFAULT_AUTHORITY: &str = "tidegate-control-plane";

/// The configuration of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub version: u32,
    pub mode: Mode,
    pub control_plane: ControlPlane,
    pub services: Vec<ServiceConfig>,
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Steer and answer.
    Enforce,
    /// Decide and count, touch nothing.
    Observe,
}

impl Mode {
    pub const ALL: [Self; 2] = [Self::Enforce, Self::Observe];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

/// Where the control plane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// Envoy cluster.
    pub cluster: String,
    /// `:authority` of the gRPC call; a cluster name such as `outbound|9000||host` is none.
    pub authority: String,
}

/// One service: which requests it takes and how they are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    pub name: String,
    pub matcher: Matcher,
    pub policy: Policy,
    /// Fixed retries after the first try.
    pub retries: u8,
    /// Time over which a new endpoint's share grows to full; zero: at once.
    pub slow_start: Span,
    pub existing_list: ExistingList,
    /// The service's own mode, else that of the filter.
    pub mode: Mode,
}

/// What a request must look like; every list that is not empty must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    pub clusters: Vec<String>,
    pub hosts: Vec<String>,
    pub path_prefixes: Vec<String>,
}

impl Matcher {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.hosts.is_empty() && self.path_prefixes.is_empty()
    }
}

/// How requests of a service are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// Water-filling over load, slots and own changes since the report.
    LiSlots,
    /// Smooth weighted round robin by capacity times free GPU memory.
    FreeMemory,
    /// Random by capacity and health.
    Weighted,
    /// Two endpoints by capacity, the less loaded one wins.
    LeastRequest,
}

impl Policy {
    pub const ALL: [Self; 4] =
        [Self::LiSlots, Self::FreeMemory, Self::Weighted, Self::LeastRequest];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LiSlots => "li_slots",
            Self::FreeMemory => "free_memory",
            Self::Weighted => "weighted",
            Self::LeastRequest => "least_request",
        }
    }
}

/// What happens to an endpoint list that an earlier endpoint picker set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExistingList {
    /// Ours takes its place.
    Replace,
    /// Its endpoints stay, without those that are down, in our order.
    Reorder,
}

impl ExistingList {
    pub const ALL: [Self; 2] = [Self::Replace, Self::Reorder];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Reorder => "reorder",
        }
    }
}

/// The configuration in `value`, or everything that is wrong with it.
///
/// # Errors
/// All errors at once, each with its path.
pub fn parse(value: &Value) -> Result<Config, Vec<ConfigError>> {
    read(value, Config::read)
}

/// What [`parse`] accepts, for JSON schema and reference table.
#[must_use]
pub fn shape() -> Shape {
    describe(Config::read)
}

impl Config {
    /// Reads the fields of one configuration.
    pub fn read(node: &mut Node<'_>) -> Self {
        let version = node.int("version", 1..=1, Need::Required, "format of this configuration");
        let mode = node.choice(
            "mode",
            &Mode::ALL.map(|m| (m.as_str(), m)),
            (Mode::Enforce.as_str(), Mode::Enforce),
            "`enforce` steers requests; `observe` decides and counts, and touches nothing",
        );
        let control_plane =
            node.object("control_plane", "where weights come from", |node| ControlPlane {
                cluster: node.text(
                    "cluster",
                    PLANE_BYTES_MAX,
                    Need::Default(DEFAULT_CLUSTER),
                    "Envoy cluster of the control plane",
                ),
                authority: node.text(
                    "authority",
                    PLANE_BYTES_MAX,
                    Need::Default(DEFAULT_AUTHORITY),
                    "`:authority` of the call to the control plane",
                ),
            });
        let services = node.list(
            "services",
            1..=SERVICES_MAX,
            "services in order; the first that matches a request takes it",
            |node| ServiceConfig::read(node, mode),
        );
        for (i, service) in services.iter().enumerate() {
            if services.iter().take(i).any(|earlier| earlier.name == service.name) {
                let text = format!("{:?} names more than one service", service.name);
                node.rule_broken(&format!("services[{i}].name"), text);
            }
        }
        Self { version: u32::try_from(version).unwrap_or(1), mode, control_plane, services }
    }
}

impl ServiceConfig {
    fn read(node: &mut Node<'_>, default_mode: Mode) -> Self {
        let name = node.parsed(
            "name",
            "name of 1..=64 bytes from a-z, 0-9, `.`, `_`, `-`",
            Need::Required,
            |text| is_service_name(text).then(|| String::from(text)),
            "name of the service, as the control plane knows it",
        );
        let matcher = node.object("match", "which requests belong to the service", Matcher::read);
        if matcher.is_empty() {
            node.rule_broken(
                "match",
                "needs at least one entry in clusters, hosts or path_prefixes".into(),
            );
        }
        Self {
            name: name.unwrap_or_default(),
            matcher,
            policy: node.choice(
                "policy",
                &Policy::ALL.map(|p| (p.as_str(), p)),
                (Policy::LiSlots.as_str(), Policy::LiSlots),
                "how requests are spread over the endpoints",
            ),
            retries: u8::try_from(node.int(
                "retries",
                0..=RETRIES_MAX,
                Need::Default(2),
                "retries after the first try, along the endpoint list",
            ))
            .unwrap_or(0),
            slow_start: Span::ms(node.int(
                "slow_start_ms",
                0..=SLOW_START_MS_MAX,
                Need::Default(60_000),
                "time over which the share of a new endpoint grows to full",
            )),
            existing_list: node.choice(
                "existing_list",
                &ExistingList::ALL.map(|e| (e.as_str(), e)),
                (ExistingList::Replace.as_str(), ExistingList::Replace),
                "what to do with an endpoint list that an earlier endpoint picker set",
            ),
            mode: node
                .optional_choice(
                    "mode",
                    &Mode::ALL.map(|m| (m.as_str(), m)),
                    "mode of this service; absent: that of the filter",
                )
                .unwrap_or(default_mode),
        }
    }
}

impl Matcher {
    fn read(node: &mut Node<'_>) -> Self {
        let clusters = node.texts(
            "clusters",
            0..=MATCHERS_MAX,
            CLUSTER_BYTES_MAX,
            "Envoy clusters, exactly; an entry without `|` also matches the host of `outbound|port|subset|host`",
        );
        let hosts = node.texts(
            "hosts",
            0..=MATCHERS_MAX,
            HOST_BYTES_MAX,
            "hosts, any case; an entry without a port matches every port",
        );
        let path_prefixes =
            node.texts("path_prefixes", 0..=MATCHERS_MAX, PATH_BYTES_MAX, "beginnings of the path");
        for (i, prefix) in path_prefixes.iter().enumerate() {
            if !prefix.starts_with('/') {
                node.rule_broken(&format!("path_prefixes[{i}]"), "must start with `/`".into());
            }
        }
        Self { clusters, hosts, path_prefixes }
    }
}

/// A service name is a metric label and a key on the wire, so it is plain text.
#[must_use]
pub fn is_service_name(text: &str) -> bool {
    (1..=SERVICE_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests;
