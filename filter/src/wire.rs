//! Between the messages of `tidegate.v1` and the types of the policy: the only file that knows both.
//!
//! Decoding is total: any bytes give an update or a [`WireError`], within [`MESSAGE_BYTES_MAX`]. A number
//! outside its range moves to the nearest bound, a state of an endpoint that is not known here reads as
//! unspecified (its gate and weight still say what it may take), and absent stays unknown. Nothing here
//! touches the host, so that a fuzzer can drive it.

use prost::Message;
use std::sync::Arc;
use tidegate_policy::local::{EndpointCounts, Feedback, ServiceCounts, Totals, WorkerCounts};
use tidegate_policy::snapshot::{EndpointUpdate, Extent, Hard, ServiceUpdate, Update};
use tidegate_policy::units::{BasisPoints, PerMille, Span, Time, Weight};
use tidegate_proto::v1;

/// Larger messages are refused before they are copied: 5,000 endpoints take about 0.5 MiB.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Why bytes are no update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    TooLong,
    Malformed,
}

impl WireError {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
        }
    }
}

/// Reads one `FleetUpdate`.
///
/// # Errors
/// [`WireError`] for bytes that are no such message or too many.
pub fn update(bytes: &[u8]) -> Result<Update, WireError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(WireError::TooLong);
    }
    let message = v1::FleetUpdate::decode(bytes).map_err(|_| WireError::Malformed)?;
    Ok(Update {
        epoch: message.epoch,
        instance: message.instance,
        period: Span::ms(message.period_ms.into()),
        proxies_live: message.proxies_live,
        extent: if message.full { Extent::Full } else { Extent::Changes },
        services: message.services.into_iter().map(service).collect(),
        services_removed: message.services_removed,
    })
}

/// Writes one `FleetUpdate`; [`update`] reads it back unchanged.
#[must_use]
pub fn update_bytes(update: Update) -> Vec<u8> {
    let message = v1::FleetUpdate {
        epoch: update.epoch,
        instance: update.instance,
        period_ms: ms(update.period),
        proxies_live: update.proxies_live,
        full: update.extent == Extent::Full,
        services: update.services.into_iter().map(service_message).collect(),
        services_removed: update.services_removed,
    };
    message.encode_to_vec()
}

/// The configuration's state, as feedback and gauge carry it.
pub use v1::ConfigState;

/// Writes the hello.
#[must_use]
pub fn hello_bytes(
    proxy_id: String,
    services: Vec<String>,
    state: ConfigState,
    error: String,
) -> Vec<u8> {
    let hello = v1::Hello {
        proxy_id,
        filter_version: env!("CARGO_PKG_VERSION").into(),
        services,
        config_state: state.into(),
        config_error: error,
    };
    request_bytes(v1::watch_request::Message::Hello(hello))
}

/// Writes one feedback.
#[must_use]
pub fn feedback_bytes(
    sequence: u64,
    feedback: &Feedback,
    state: ConfigState,
    error: String,
) -> Vec<u8> {
    let services = feedback.services.iter().map(|service| v1::ServiceFeedback {
        service: service.service.to_string(),
        arrivals: service.arrivals,
        endpoints: service
            .endpoints
            .iter()
            .map(|e| v1::EndpointFeedback {
                endpoint: e.address.to_string(),
                in_flight: e.in_flight,
                started: small(e.totals.started),
                ended_ok: small(e.totals.ended_ok),
                ended_busy: small(e.totals.ended_busy),
                ended_broken: small(e.totals.ended_broken),
                ended_cancelled: small(e.totals.ended_cancelled),
                ttft_ms_sum: e.totals.ttft_ms_sum,
                ttft_count: small(e.totals.ttft_count),
            })
            .collect(),
    });
    request_bytes(v1::watch_request::Message::Feedback(v1::Feedback {
        sequence,
        window_ms: ms(feedback.window),
        services: services.collect(),
        config_state: state.into(),
        config_error: error,
        rung: feedback.rung.number().into(),
    }))
}

fn request_bytes(message: v1::watch_request::Message) -> Vec<u8> {
    v1::WatchRequest { message: Some(message) }.encode_to_vec()
}

/// What a worker leaves for the others: only VMs of one Envoy and one module version read it.
#[derive(Clone, PartialEq, Message)]
struct Counts {
    #[prost(message, repeated, tag = "1")]
    services: Vec<CountsOfService>,
}

#[derive(Clone, PartialEq, Message)]
struct CountsOfService {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(uint64, tag = "2")]
    arrivals: u64,
    #[prost(message, repeated, tag = "3")]
    endpoints: Vec<CountsOfEndpoint>,
    /// The endpoints with requests in flight once more, for readers of [`Loads`].
    #[prost(message, repeated, tag = "4")]
    busy: Vec<LoadOfEndpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct CountsOfEndpoint {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(uint32, tag = "2")]
    in_flight: u32,
    /// In the order of the fields of [`Totals`].
    #[prost(uint64, repeated, tag = "3")]
    totals: Vec<u64>,
}

/// The part of [`Counts`] that every worker reads at every tick. Totals are for the watcher alone: with
/// 15 other workers and 1,000 endpoints, reading them takes 4 ms, and this with 10 busy ones 0.1 ms.
#[derive(Clone, PartialEq, Message)]
struct Loads {
    #[prost(message, repeated, tag = "1")]
    services: Vec<LoadsOfService>,
}

#[derive(Clone, PartialEq, Message)]
struct LoadsOfService {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(uint64, tag = "2")]
    arrivals: u64,
    #[prost(message, repeated, tag = "4")]
    busy: Vec<LoadOfEndpoint>,
}

#[derive(Clone, PartialEq, Message)]
struct LoadOfEndpoint {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(uint32, tag = "2")]
    in_flight: u32,
}

/// Writes a worker's counts, without its id and time, which its card holds.
#[must_use]
pub fn counts_bytes(counts: &WorkerCounts) -> Vec<u8> {
    let services = counts.services.iter().map(|service| CountsOfService {
        service: service.service.to_string(),
        arrivals: service.arrivals,
        endpoints: service
            .endpoints
            .iter()
            .map(|e| CountsOfEndpoint {
                address: e.address.to_string(),
                in_flight: e.in_flight,
                totals: vec![
                    e.totals.started,
                    e.totals.ended_ok,
                    e.totals.ended_busy,
                    e.totals.ended_broken,
                    e.totals.ended_cancelled,
                    e.totals.ttft_ms_sum,
                    e.totals.ttft_count,
                ],
            })
            .collect(),
        busy: service
            .endpoints
            .iter()
            .filter(|e| e.in_flight > 0)
            .map(|e| LoadOfEndpoint { address: e.address.to_string(), in_flight: e.in_flight })
            .collect(),
    });
    Counts { services: services.collect() }.encode_to_vec()
}

/// Reads the counts that `worker` wrote at `at`; `None` for other bytes.
#[must_use]
pub fn counts(worker: u64, at: Time, bytes: &[u8]) -> Option<WorkerCounts> {
    let message = Counts::decode(bytes).ok()?;
    let services = message.services.into_iter().map(|service| ServiceCounts {
        service: Arc::from(service.service),
        arrivals: service.arrivals,
        endpoints: service.endpoints.into_iter().map(counts_of_endpoint).collect(),
    });
    Some(WorkerCounts { worker, at, services: services.collect() })
}

/// Reads arrivals and requests in flight alone out of the same bytes; totals are zero.
#[must_use]
pub fn loads(worker: u64, at: Time, bytes: &[u8]) -> Option<WorkerCounts> {
    let message = Loads::decode(bytes).ok()?;
    let endpoint = |load: LoadOfEndpoint| EndpointCounts {
        address: Arc::from(load.address),
        in_flight: load.in_flight,
        totals: Totals::default(),
    };
    let services = message.services.into_iter().map(|service| ServiceCounts {
        service: Arc::from(service.service),
        arrivals: service.arrivals,
        endpoints: service.busy.into_iter().map(endpoint).collect(),
    });
    Some(WorkerCounts { worker, at, services: services.collect() })
}

fn counts_of_endpoint(message: CountsOfEndpoint) -> EndpointCounts {
    let mut totals = message.totals.into_iter();
    let mut next = || totals.next().unwrap_or_default();
    EndpointCounts {
        address: Arc::from(message.address),
        in_flight: message.in_flight,
        totals: Totals {
            started: next(),
            ended_ok: next(),
            ended_busy: next(),
            ended_broken: next(),
            ended_cancelled: next(),
            ttft_ms_sum: next(),
            ttft_count: next(),
        },
    }
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn service(message: v1::Service) -> ServiceUpdate {
    ServiceUpdate {
        name: message.name,
        arrival_rate: message.arrival_rate,
        endpoints: message.endpoints.into_iter().map(endpoint).collect(),
        endpoints_removed: message.endpoints_removed,
        mean_service: span(message.mean_service_ms),
    }
}

fn service_message(service: ServiceUpdate) -> v1::Service {
    v1::Service {
        name: service.name,
        arrival_rate: service.arrival_rate,
        endpoints: service.endpoints.into_iter().map(endpoint_message).collect(),
        endpoints_removed: service.endpoints_removed,
        mean_service_ms: service.mean_service.map(ms),
    }
}

fn endpoint(message: v1::Endpoint) -> EndpointUpdate {
    EndpointUpdate {
        address: message.address,
        weight: Weight::clamped(message.weight),
        in_flight: message.in_flight,
        slots: message.slots,
        gate: PerMille::clamped(message.gate_pm),
        success: message.success_bp.map(BasisPoints::clamped),
        age: span(message.age_ms),
        hard: match v1::HardState::try_from(message.hard) {
            Ok(v1::HardState::Unspecified | v1::HardState::Up) | Err(_) => Hard::Up,
            Ok(v1::HardState::Draining) => Hard::Draining,
            Ok(v1::HardState::Down) => Hard::Down,
        },
        node: message.node,
        gpu_type: message.gpu_type,
        type_weight: Weight::clamped(message.type_weight),
        memory_free: message.memory_free_bp.map(BasisPoints::clamped),
        healthy_for: span(message.healthy_for_ms),
    }
}

fn endpoint_message(endpoint: EndpointUpdate) -> v1::Endpoint {
    let hard = match endpoint.hard {
        Hard::Up => v1::HardState::Up,
        Hard::Draining => v1::HardState::Draining,
        Hard::Down => v1::HardState::Down,
    };
    v1::Endpoint {
        address: endpoint.address,
        weight: endpoint.weight.get().into(),
        in_flight: endpoint.in_flight,
        slots: endpoint.slots,
        gate_pm: endpoint.gate.get().into(),
        success_bp: endpoint.success.map(|bp| bp.get().into()),
        age_ms: endpoint.age.map(ms),
        hard: hard.into(),
        node: endpoint.node,
        gpu_type: endpoint.gpu_type,
        type_weight: endpoint.type_weight.get().into(),
        memory_free_bp: endpoint.memory_free.map(|bp| bp.get().into()),
        healthy_for_ms: endpoint.healthy_for.map(ms),
    }
}

fn span(ms: Option<u32>) -> Option<Span> {
    ms.map(|ms| Span::ms(ms.into()))
}

fn ms(span: Span) -> u32 {
    u32::try_from(span.as_ms()).unwrap_or(u32::MAX)
}
