//! What a proxy says, checked and turned into counts.

use tidegate_proto::v1;

use super::check::Check;
use crate::{
    config::Limits,
    proxies::{ConfigState, EndpointCounts, Feedback, Hello, ServiceCounts},
    text,
};

/// Requests of one proxy at one endpoint; more is no count.
const IN_FLIGHT_MAX: u32 = 1_000_000;
/// Requests that reach one proxy in a window. Sums of them only grow, and a sum that one lie brought to its
/// end would show no arrivals ever after.
const ARRIVALS_MAX: u64 = 100_000_000;

/// Checks a hello.
///
/// # Errors
/// What is wrong with it, with path, value and range.
pub fn hello(h: v1::Hello, limits: &Limits) -> Result<Hello, String> {
    let mut check = Check::new(limits);
    check.identity(format_args!("hello.proxy_id"), &h.proxy_id);
    check.length(format_args!("hello.services"), h.services.len(), limits.services_per_hello);
    for (i, service) in h.services.iter().enumerate().take(limits.services_per_hello) {
        check.name(format_args!("hello.services[{i}]"), service);
    }
    check.verdict()?;
    Ok(Hello {
        proxy_id: h.proxy_id,
        filter_version: text::cut(&h.filter_version, limits.text_bytes),
        services: h.services.into_iter().collect(),
        config: config_state(h.config_state),
        config_error: text::cut(&h.config_error, limits.detail_bytes),
    })
}

/// Checks one feedback message.
///
/// # Errors
/// What is wrong with it, with path, value and range.
pub fn feedback(f: v1::Feedback, limits: &Limits) -> Result<Feedback, String> {
    let mut check = Check::new(limits);
    check.length(format_args!("feedback.services"), f.services.len(), limits.services);
    check.verdict()?;
    let mut services = Vec::with_capacity(f.services.len());
    for (i, s) in f.services.into_iter().enumerate() {
        check.length(
            format_args!("feedback.services[{i}].endpoints"),
            s.endpoints.len(),
            limits.endpoints_per_service,
        );
        check.within(format_args!("feedback.services[{i}].arrivals"), s.arrivals, 0..=ARRIVALS_MAX);
        for (j, e) in s.endpoints.iter().enumerate() {
            check.within(
                format_args!("feedback.services[{i}].endpoints[{j}].in_flight"),
                e.in_flight,
                0..=IN_FLIGHT_MAX,
            );
        }
        let endpoints = s.endpoints.into_iter().map(counts).collect();
        services.push(ServiceCounts { service: s.service, arrivals: s.arrivals, endpoints });
    }
    check.verdict()?;
    Ok(Feedback {
        sequence: f.sequence,
        config: config_state(f.config_state),
        config_error: text::cut(&f.config_error, limits.detail_bytes),
        rung: f.rung,
        services,
    })
}

fn counts(e: v1::EndpointFeedback) -> EndpointCounts {
    EndpointCounts {
        endpoint: e.endpoint,
        in_flight: e.in_flight,
        ok: e.ended_ok.into(),
        busy: e.ended_busy.into(),
        broken: e.ended_broken.into(),
        cancelled: e.ended_cancelled.into(),
        ttft_ms_sum: e.ttft_ms_sum,
        ttft_count: e.ttft_count.into(),
    }
}

fn config_state(state: i32) -> ConfigState {
    match v1::ConfigState::try_from(state).unwrap_or_default() {
        v1::ConfigState::Unspecified => ConfigState::Unknown,
        v1::ConfigState::Ok => ConfigState::Ok,
        v1::ConfigState::LastGood => ConfigState::LastGood,
        v1::ConfigState::PassThrough => ConfigState::PassThrough,
    }
}

#[cfg(test)]
mod tests;
