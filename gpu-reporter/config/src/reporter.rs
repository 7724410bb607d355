use std::net::SocketAddr;

use tidegate_strict::{ConfigError, Need, Node, Shape, Value};

use crate::{GPUS_MAX, GpuName, check_name};

/// An address `ip:port` to listen on.
pub type Address = SocketAddr;

/// Where the control plane listens, as `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneUrl(String);

impl ControlPlaneUrl {
    /// Accepts `http://host:port`, with nothing behind the port but one slash.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let authority = text.strip_prefix("http://")?.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        (!host.is_empty() && host.chars().all(plain) && port > 0)
            .then(|| Self(format!("http://{authority}")))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the reporter does; every field has a default, so an empty file with `version: 1` is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct ReporterConfig {
    pub node: Option<String>,
    pub control_plane: Option<ControlPlaneUrl>,
    pub listen: Address,
    pub nvml_lib: Option<String>,
    pub workloads: Option<String>,
    pub gpus: Vec<GpuName>,
    pub expected_gpus: Option<u32>,
    pub interval_ms: u64,
    pub medium_interval_ms: u64,
    pub slow_interval_ms: u64,
    pub slow_call_ms: u64,
    pub hung_call_ms: u64,
    pub scrape_timeout_ms: u64,
    pub processes: bool,
    pub log: String,
}

impl ReporterConfig {
    /// Reads and describes at once; see [`tidegate_strict`].
    pub fn read(node: &mut Node<'_>) -> Self {
        node.int("version", 1..=1, Need::Required, "version of this format");
        let config = Self {
            node: node.optional_text(
                "node",
                63,
                "name of this node in reports; the host name if absent",
            ),
            control_plane: node.optional_control_plane(),
            listen: node
                .parsed(
                    "listen",
                    "an address ip:port",
                    Need::Default("127.0.0.1:9400"),
                    |text| text.parse().ok(),
                    "where /healthz, /readyz and /metrics are served",
                )
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9400))),
            nvml_lib: node.optional_text(
                "nvml_lib",
                4096,
                "path of libnvidia-ml.so.1; the usual places if absent",
            ),
            workloads: node.optional_text(
                "workloads",
                4096,
                "path of the workloads file, re-read when it changes",
            ),
            gpus: GpuName::read(
                node,
                "gpus",
                0..=GPUS_MAX,
                "report only these GPUs, by index or UUID; all if empty",
            ),
            expected_gpus: node
                .optional_int("expected_gpus", 0..=64, "how many GPUs this node should have")
                .and_then(|n| u32::try_from(n).ok()),
            interval_ms: node.int(
                "interval_ms",
                100..=10_000,
                Need::Default(500),
                "period of reports and of the fast tier: load, memory, temperature, clocks",
            ),
            medium_interval_ms: node.int(
                "medium_interval_ms",
                1_000..=600_000,
                Need::Default(10_000),
                "period of the medium tier: ECC, remapped rows, PCIe, MIG, processes",
            ),
            slow_interval_ms: node.int(
                "slow_interval_ms",
                1_000..=3_600_000,
                Need::Default(60_000),
                "period of the slow tier: limits, maxima, and calls that were unsupported",
            ),
            slow_call_ms: node.int(
                "slow_call_ms",
                50..=30_000,
                Need::Default(500),
                "a driver call that takes longer makes its GPU slow",
            ),
            hung_call_ms: node.int(
                "hung_call_ms",
                200..=60_000,
                Need::Default(1_000),
                "a driver call that takes longer makes its GPU hung, until the call returns",
            ),
            scrape_timeout_ms: node.int(
                "scrape_timeout_ms",
                50..=5_000,
                Need::Default(500),
                "longest wait for a model server's metrics",
            ),
            processes: node.flag(
                "processes",
                false,
                "list compute processes; 4.5 ms of driver lock per call, so off by default",
            ),
            log: node.text("log", 256, Need::Default("info"), "log filter, as in RUST_LOG"),
        };
        check_name(node, "node", config.node.as_deref().unwrap_or_default());
        if config.slow_call_ms > config.hung_call_ms {
            node.rule_broken("slow_call_ms", "must not exceed hung_call_ms".into());
        }
        config
    }
}

trait ControlPlaneField {
    fn optional_control_plane(&mut self) -> Option<ControlPlaneUrl>;
}

impl ControlPlaneField for Node<'_> {
    fn optional_control_plane(&mut self) -> Option<ControlPlaneUrl> {
        let text = self.optional_text(
            "control_plane",
            512,
            "where reports go, as http://host:port; without it only /metrics is served",
        )?;
        let url = ControlPlaneUrl::parse(&text);
        if url.is_none() {
            self.rule_broken("control_plane", format!("{text:?} is not http://host:port"));
        }
        url
    }
}

/// Reads the reporter's configuration.
///
/// # Errors
/// Every [`ConfigError`] at once.
pub fn parse(value: &Value) -> Result<ReporterConfig, Vec<ConfigError>> {
    tidegate_strict::read(value, ReporterConfig::read)
}

/// Fields, ranges, defaults and meanings.
#[must_use]
pub fn shape() -> Shape {
    tidegate_strict::describe(ReporterConfig::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: &str) -> Result<ReporterConfig, Vec<String>> {
        let value: Value = serde_json::from_str(json).unwrap();
        parse(&value).map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn version_alone_is_a_whole_configuration() {
        let config = texts(r#"{"version":1}"#).unwrap();
        assert_eq!(
            (config.interval_ms, config.hung_call_ms, config.processes),
            (500, 1_000, false)
        );
        assert_eq!(config.listen, "127.0.0.1:9400".parse().unwrap());
    }

    #[test]
    fn intervals_are_bounded_on_both_sides() {
        for (ms, good) in [(99, false), (100, true), (10_000, true), (10_001, false)] {
            assert_eq!(
                texts(&format!(r#"{{"version":1,"interval_ms":{ms}}}"#)).is_ok(),
                good,
                "{ms}"
            );
        }
        for (ms, good) in [(199, false), (200, true), (60_000, true), (60_001, false)] {
            let json = format!(r#"{{"version":1,"slow_call_ms":50,"hung_call_ms":{ms}}}"#);
            assert_eq!(texts(&json).is_ok(), good, "{ms}");
        }
    }

    #[test]
    fn every_error_comes_at_once() {
        let json = r#"{"version":2,"control_plane":"https://x","interval_ms":5,"gpus":[0,99],
            "slow_call_ms":2000,"intervall_ms":1}"#;
        assert_eq!(
            texts(json).unwrap_err(),
            [
                "version: 2 is outside 1..=1",
                "control_plane: \"https://x\" is not http://host:port",
                "gpus[1]: 99 is outside 0..=63",
                "interval_ms: 5 is outside 100..=10000",
                "slow_call_ms: must not exceed hung_call_ms",
                "intervall_ms: is not a known key; did you mean `interval_ms`",
            ]
        );
    }

    #[test]
    fn control_plane_is_plain_http_with_a_port() {
        for (text, good) in [
            ("http://127.0.0.1:9000", true),
            ("http://cp.tidegate.svc:9000/", true),
            ("http://[::1]:9000", true),
            ("http://host", false),
            ("http://host:0", false),
            ("http://host:9000/path", false),
            ("http://us er:9000", false),
            ("https://host:9000", false),
        ] {
            assert_eq!(ControlPlaneUrl::parse(text).is_some(), good, "{text}");
        }
    }
}
