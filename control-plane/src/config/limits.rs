//! Every bound of the control plane, in one place.
//!
//! A control plane that a client can exhaust takes the whole fleet with it, so each queue, map, rate
//! and time has a named limit here, a default, and a range that an operator may choose from. The
//! defaults hold a fleet of 1,000 nodes and 1,000 proxies with 50,000 endpoints.

use std::time::Duration;

use tidegate_strict::{ConfigError, Need, Node, Value};

/// Reports a second that one reporter may sustain.
///
/// The fastest interval a reporter accepts is 100 ms, jittered by a tenth: 11 a second. Events come on
/// top, out of `reports_burst`. At the usual 500 ms a reporter uses a sixth of this.
const REPORTS_PER_SECOND: u64 = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub message_bytes: usize,
    pub connections: usize,
    pub streams_per_connection: u32,
    pub streams_per_second: u32,
    pub streams_burst: u32,
    pub report_streams: usize,
    pub reports_per_second: u32,
    pub reports_burst: u32,
    pub nodes: usize,
    pub parts_per_node: usize,
    pub gpus_per_report: usize,
    pub workloads_per_report: usize,
    pub items_per_gpu: usize,
    pub text_bytes: usize,
    pub detail_bytes: usize,
    pub watch_streams: usize,
    pub services_per_hello: usize,
    pub feedback_per_second: u32,
    pub feedback_burst: u32,
    pub services: usize,
    pub endpoints_per_service: usize,
    pub endpoints: usize,
    pub discovery_bytes: usize,
    pub event_pushes_per_second: u32,
}

impl Limits {
    /// The limits of a configuration that says nothing about them.
    ///
    /// # Errors
    /// None: no field is required. The type spares this a panic.
    pub fn defaults() -> Result<Self, Vec<ConfigError>> {
        tidegate_strict::read(&Value::Map(Vec::new()), Self::read)
    }

    pub(super) fn read(n: &mut Node<'_>) -> Self {
        Self {
            message_bytes: count(
                n,
                "message_bytes",
                1024..=4_194_304,
                1_048_576,
                "largest gRPC message taken, in bytes; compression is off, so this bounds memory too",
            ),
            connections: count(
                n,
                "connections",
                1..=100_000,
                4_000,
                "gRPC connections; one more is closed at once",
            ),
            streams_per_connection: small(
                n,
                "streams_per_connection",
                1..=1_024,
                16,
                "HTTP/2 streams open at once on a connection",
            ),
            streams_per_second: small(
                n,
                "streams_per_second",
                1..=10_000,
                50,
                "new streams accepted a second; the rest is asked to come back",
            ),
            streams_burst: small(
                n,
                "streams_burst",
                1..=10_000,
                50,
                "new streams accepted at once after a quiet time",
            ),
            report_streams: count(n, "report_streams", 1..=100_000, 2_000, "reporters connected"),
            reports_per_second: small(
                n,
                "reports_per_second",
                1..=100,
                REPORTS_PER_SECOND,
                "reports a second that one reporter may sustain; the shortest interval of a reporter \
                 is 100 ms",
            ),
            reports_burst: small(
                n,
                "reports_burst",
                1..=1_000,
                10,
                "reports at once from one reporter, for events between its periods",
            ),
            nodes: count(n, "nodes", 1..=100_000, 2_000, "nodes remembered"),
            parts_per_node: count(
                n,
                "parts_per_node",
                1..=256,
                64,
                "reporters that share a node, each for some of its GPUs",
            ),
            gpus_per_report: count(n, "gpus_per_report", 1..=1_024, 64, "GPUs in a report"),
            workloads_per_report: count(
                n,
                "workloads_per_report",
                1..=4_096,
                256,
                "model servers in a report",
            ),
            items_per_gpu: count(
                n,
                "items_per_gpu",
                1..=4_096,
                256,
                "processes, Xid events, MIG instances or unsupported calls listed for one GPU",
            ),
            text_bytes: count(
                n,
                "text_bytes",
                40..=64,
                64,
                "bytes in a name or label; a GPU UUID has 40",
            ),
            detail_bytes: count(
                n,
                "detail_bytes",
                16..=4_096,
                256,
                "bytes kept of a text for people; longer ones are cut",
            ),
            watch_streams: count(n, "watch_streams", 1..=100_000, 4_000, "proxies connected"),
            services_per_hello: count(
                n,
                "services_per_hello",
                1..=4_096,
                64,
                "services that one proxy may name",
            ),
            feedback_per_second: small(
                n,
                "feedback_per_second",
                1..=100,
                12,
                "feedback messages a second that one proxy may sustain",
            ),
            feedback_burst: small(
                n,
                "feedback_burst",
                1..=1_000,
                10,
                "feedback messages at once from one proxy",
            ),
            services: count(n, "services", 1..=256, 256, "services in the discovery file"),
            endpoints_per_service: count(
                n,
                "endpoints_per_service",
                1..=5_000,
                5_000,
                "endpoints of one service",
            ),
            endpoints: count(n, "endpoints", 1..=500_000, 50_000, "endpoints of all services"),
            discovery_bytes: count(
                n,
                "discovery_bytes",
                1_024..=67_108_864,
                16_777_216,
                "size of the discovery file in bytes",
            ),
            event_pushes_per_second: small(
                n,
                "event_pushes_per_second",
                1..=100,
                5,
                "updates a second between the periods, sent at once after an event",
            ),
        }
    }
}

/// How long things may take and last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    pub hello: Duration,
    pub slow_reader: Duration,
    pub stream_age: Duration,
    pub full_update: Duration,
    pub warm_up: Duration,
    pub node_expiry: Duration,
    pub feedback_expiry: Duration,
    pub shutdown: Duration,
}

impl Timeouts {
    pub(super) fn read(n: &mut Node<'_>) -> Self {
        Self {
            keepalive_interval: span(
                n,
                "keepalive_interval_ms",
                1_000..=600_000,
                10_000,
                "HTTP/2 ping after this long without traffic",
            ),
            keepalive_timeout: span(
                n,
                "keepalive_timeout_ms",
                1_000..=600_000,
                10_000,
                "a connection whose ping stays unanswered this long is closed",
            ),
            hello: span(
                n,
                "hello_ms",
                100..=60_000,
                5_000,
                "a proxy says hello, and a reporter sends its first report, within this time",
            ),
            slow_reader: span(
                n,
                "slow_reader_ms",
                1_000..=600_000,
                30_000,
                "a proxy that takes no update for this long loses its connection",
            ),
            stream_age: span(
                n,
                "stream_age_ms",
                10_000..=86_400_000,
                1_800_000,
                "a stream ends in good order after this long, give or take a fifth, so that clients \
                 spread over replicas",
            ),
            full_update: span(
                n,
                "full_update_ms",
                1_000..=600_000,
                30_000,
                "the whole state is sent again after this long",
            ),
            warm_up: span(
                n,
                "warm_up_ms",
                0..=60_000,
                3_000,
                "after its start the control plane waits this long for the nodes that discovery names, so \
                 that a restart does not call a broken GPU healthy",
            ),
            node_expiry: span(
                n,
                "node_expiry_ms",
                10_000..=86_400_000,
                600_000,
                "a node that is silent for this long is forgotten",
            ),
            feedback_expiry: span(
                n,
                "feedback_expiry_ms",
                1_000..=600_000,
                10_000,
                "counts of a proxy that is connected but silent for this long stop counting",
            ),
            shutdown: span(
                n,
                "shutdown_ms",
                0..=60_000,
                1_500,
                "time for streams to end in good order after SIGTERM",
            ),
        }
    }
}

fn count(
    n: &mut Node<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
    doc: &'static str,
) -> usize {
    usize::try_from(n.int(name, range, Need::Default(default), doc)).unwrap_or(usize::MAX)
}

fn small(
    n: &mut Node<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
    doc: &'static str,
) -> u32 {
    u32::try_from(n.int(name, range, Need::Default(default), doc)).unwrap_or(u32::MAX)
}

fn span(
    n: &mut Node<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
    doc: &'static str,
) -> Duration {
    Duration::from_millis(n.int(name, range, Need::Default(default), doc))
}
