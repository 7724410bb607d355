use std::{net::SocketAddr, ops::RangeInclusive};

use tidegate_strict::{ConfigError, Need, Node, Shape, Value};

use crate::{GPUS_MAX, NAME_BYTES_MAX, check_name};

/// Most model servers on one node.
const WORKLOADS_MAX: usize = 256;

/// A GPU as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GpuName {
    /// As the driver counts; may change at a reboot.
    Index(u32),
    /// `GPU-…`, or `MIG-…` for an instance.
    Uuid(String),
}

impl GpuName {
    /// Largest index and longest UUID, in bytes, as [`Node::names`] wants them.
    pub const BOUNDS: (u64, usize) = (63, NAME_BYTES_MAX);

    pub(crate) fn read(
        node: &mut Node<'_>,
        field: &'static str,
        len: RangeInclusive<usize>,
        doc: &'static str,
    ) -> Vec<Self> {
        let names = node.names(field, len, Self::BOUNDS, doc);
        for name in &names {
            check_name(node, field, name);
        }
        names.iter().map(|name| Self::parse(name)).collect()
    }

    /// Digits are an index, anything else a UUID.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Uuid(text.into()), Self::Index)
    }
}

/// Where a model server shows its metrics: `http://host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsUrl(String);

impl MetricsUrl {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let port: u16 = port.parse().ok()?;
        let plain = |c: char| c.is_ascii_graphic() && !"@<>\"{}|\\^`".contains(c);
        (!host.is_empty() && port > 0 && host.chars().chain(path.chars()).all(plain))
            .then(|| Self(format!("http://{host}:{port}/{path}")))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whose metric names to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    Vllm,
    Sglang,
    Tgi,
    Triton,
    Trtllm,
}

impl EngineKind {
    pub const ALL: [Self; 5] = [Self::Vllm, Self::Sglang, Self::Tgi, Self::Triton, Self::Trtllm];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
            Self::Triton => "triton",
            Self::Trtllm => "trtllm",
        }
    }
}

/// One model server on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub endpoint: SocketAddr,
    pub service: String,
    pub gpus: Vec<GpuName>,
    pub metrics_url: Option<MetricsUrl>,
    /// Absent: found from the names that the metrics carry.
    pub engine: Option<EngineKind>,
    /// Requests that run together, for engines that do not say so themselves.
    pub slots: Option<u32>,
    pub namespace: String,
    pub pod: String,
}

/// The workloads file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workloads {
    pub workloads: Vec<Workload>,
}

impl Workloads {
    /// Reads and describes at once; see [`tidegate_strict`].
    pub fn read(node: &mut Node<'_>) -> Self {
        node.int("version", 1..=1, Need::Required, "version of this format");
        let doc = "model servers on this node";
        let read = node.list("workloads", 0..=WORKLOADS_MAX, doc, workload);
        let workloads: Vec<Workload> = read.into_iter().flatten().collect();
        for (index, one) in workloads.iter().enumerate() {
            if workloads.iter().take(index).any(|earlier| earlier.endpoint == one.endpoint) {
                let text = format!("endpoint {} appears more than once", one.endpoint);
                node.rule_broken("workloads", text);
            }
        }
        Self { workloads }
    }
}

/// `None` only where an error was noted.
fn workload(node: &mut Node<'_>) -> Option<Workload> {
    let endpoint = node.parsed(
        "endpoint",
        "an address ip:port",
        Need::Required,
        |text| text.parse().ok().filter(|a: &SocketAddr| a.port() > 0),
        "address as Envoy knows it",
    );
    let service = node.text("service", 63, Need::Required, "service that it serves");
    check_name(node, "service", &service);
    let doc = "GPUs it runs on, by index or UUID";
    let gpus = GpuName::read(node, "gpus", 1..=GPUS_MAX, doc);
    let doc = "where its metrics are, as http://host:port/path";
    let metrics_url = node.optional_text("metrics_url", 512, doc).and_then(|text| {
        let url = MetricsUrl::parse(&text);
        if url.is_none() {
            node.rule_broken("metrics_url", format!("{text:?} is not http://host:port/path"));
        }
        url
    });
    let kinds = EngineKind::ALL.map(|kind| (kind.as_str(), kind));
    let engine = node.optional_choice("engine", &kinds, "whose metrics; found from them if absent");
    let slots = node.optional_int(
        "slots",
        1..=65_536,
        "requests that run together, where the metrics do not say",
    );
    let doc = "Kubernetes namespace";
    let namespace = node.optional_text("namespace", NAME_BYTES_MAX, doc).unwrap_or_default();
    let pod = node.optional_text("pod", NAME_BYTES_MAX, "Kubernetes pod").unwrap_or_default();
    check_name(node, "namespace", &namespace);
    check_name(node, "pod", &pod);
    Some(Workload {
        endpoint: endpoint?,
        service,
        gpus,
        metrics_url,
        engine,
        slots: slots.and_then(|n| u32::try_from(n).ok()),
        namespace,
        pod,
    })
}

/// Reads the workloads file.
///
/// # Errors
/// Every [`ConfigError`] at once.
pub fn parse_workloads(value: &Value) -> Result<Workloads, Vec<ConfigError>> {
    tidegate_strict::read(value, Workloads::read)
}

/// Fields, ranges, defaults and meanings.
#[must_use]
pub fn workloads_shape() -> Shape {
    tidegate_strict::describe(Workloads::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: &str) -> Result<Workloads, Vec<String>> {
        let value: Value = serde_json::from_str(json).unwrap();
        parse_workloads(&value).map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn gpus_are_named_by_index_or_uuid() {
        let json = r#"{"version":1,"workloads":[{"endpoint":"127.0.0.1:8001","service":"llm",
            "gpus":[0,"GPU-a","3"],"metrics_url":"http://127.0.0.1:8001/metrics","slots":8}]}"#;
        let all = texts(json).unwrap().workloads;
        let uuid = GpuName::Uuid("GPU-a".into());
        assert_eq!(all[0].gpus, [GpuName::Index(0), uuid, GpuName::Index(3)]);
        assert_eq!((all[0].slots, all[0].engine), (Some(8), None));
    }

    #[test]
    fn errors_carry_the_place_of_each_workload() {
        let json = r#"{"version":1,"workloads":[{"endpoint":"host:1","service":"llm","gpus":[]},
            {"endpoint":"1.2.3.4:0","gpus":[64],"metrics_url":"ftp://x","engine":"vlm","slots":0}]}"#;
        assert_eq!(
            texts(json).unwrap_err(),
            [
                "workloads[0].endpoint: \"host:1\" is outside an address ip:port",
                "workloads[0].gpus: a list of 0 is outside a length of 1..=64",
                "workloads[1].endpoint: \"1.2.3.4:0\" is outside an address ip:port",
                "workloads[1].service: is missing; expected text of 1..=63 bytes",
                "workloads[1].gpus[0]: 64 is outside 0..=63",
                "workloads[1].metrics_url: \"ftp://x\" is not http://host:port/path",
                "workloads[1].engine: \"vlm\" is outside one of vllm, sglang, tgi, triton, trtllm",
                "workloads[1].slots: 0 is outside 1..=65536",
            ]
        );
    }

    #[test]
    fn names_are_safe_in_a_label() {
        let of = |service: &str, gpu: &str| {
            texts(&format!(
                r#"{{"version":1,"workloads":[{{"endpoint":"127.0.0.1:1","service":"{service}","gpus":["{gpu}"]}}]}}"#
            ))
        };
        assert!(of("llm.v1", "MIG-GPU-a/7/0").is_ok());
        let rule = "has other than letters, digits and . _ - / : |";
        assert_eq!(of("l m", "a").unwrap_err(), [format!("workloads[0].service: \"l m\" {rule}")]);
        assert_eq!(of("llm", "a,b").unwrap_err(), [format!("workloads[0].gpus: \"a,b\" {rule}")]);
    }

    #[test]
    fn one_endpoint_is_one_workload() {
        let one = r#"{"endpoint":"127.0.0.1:1","service":"a","gpus":[0]}"#;
        let errors = texts(&format!(r#"{{"version":1,"workloads":[{one},{one}]}}"#)).unwrap_err();
        assert_eq!(errors, ["workloads: endpoint 127.0.0.1:1 appears more than once"]);
    }

    #[test]
    fn metrics_url_has_a_port_and_no_surprises() {
        let url = |text| MetricsUrl::parse(text).map(|u| u.as_str().to_owned());
        assert_eq!(url("http://h/metrics").as_deref(), Some("http://h:80/metrics"));
        assert_eq!(url("http://h:8002").as_deref(), Some("http://h:8002/"));
        assert_eq!(url("http://u@h:1/"), None);
        assert_eq!(url("http://h:1/a b"), None);
    }
}
