//! The metrics as text, for a scrape.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::Registry,
};
use tidegate_weighting::{Alarm, EndpointSnapshot, HardState};
use tokio::time::Instant;

use super::{
    Cause, Counts, FeedbackResult, Kind, Name, ReportReason, StreamEnd, StreamKind, StreamRefusal,
    UpdateKind,
};
use crate::{core::Core, proxies::ConfigState, publish::Snapshot};

const NANOS_PER_SECOND: f64 = 1e9;
const ALARM_KINDS: [&str; 4] = ["low_capacity", "mass_silence", "node_suspect", "invariant"];

/// All metrics in the OpenMetrics text format.
///
/// # Errors
/// Never in practice: a string takes any text.
pub fn text_of(core: &Arc<Core>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(Arc::clone(core))));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct All(Arc<Core>);

impl Collector for All {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let core = &*self.0;
        let mut out = Out { encoder };
        own(&mut out, core)?;
        streams(&mut out, core)?;
        reports(&mut out, core)?;
        proxies(&mut out, core)?;
        discovery(&mut out, core)?;
        match core.snapshot() {
            Some(snapshot) => fleet(&mut out, core, &snapshot),
            None => Ok(()),
        }
    }
}

fn own(out: &mut Out<'_>, core: &Core) -> fmt::Result {
    let m = &core.metrics;
    out.series(Name::BuildInfo, [([("version", env!("CARGO_PKG_VERSION"))], 1.0)])?;
    out.one(Name::Ready, if core.not_ready().is_empty() { 1.0 } else { 0.0 })?;
    out.one(Name::Uptime, core.uptime().as_secs_f64())?;
    out.one(Name::Epoch, float(core.snapshot().map_or(0, |s| s.epoch)))?;
    out.counts(Name::Steps, "cause", &Cause::ALL.map(Cause::as_str), &m.steps)?;
    out.one(Name::StepSeconds, float(m.step_nanos.get()) / NANOS_PER_SECOND)?;
    out.counts(Name::PushMessages, "kind", &UpdateKind::ALL.map(UpdateKind::as_str), &m.pushes)?;
    out.one(Name::PushBytes, float(m.push_bytes.get()))
}

fn streams(out: &mut Out<'_>, core: &Core) -> fmt::Result {
    let m = &core.metrics;
    out.one(Name::Connections, float(m.connections.get()))?;
    out.one(Name::ConnectionsRefused, float(m.connections_refused.get()))?;
    let open = StreamKind::ALL.map(|k| ([("kind", k.as_str())], float(m.streams(k).get())));
    out.series(Name::Streams, open)?;
    let refusals = StreamRefusal::ALL.map(StreamRefusal::as_str);
    out.counts(Name::StreamsRefused, "reason", &refusals, &m.streams_refused)?;
    let ends = StreamEnd::ALL.map(StreamEnd::as_str);
    out.counts(Name::StreamsEnded, "reason", &ends, &m.streams_ended)
}

fn reports(out: &mut Out<'_>, core: &Core) -> fmt::Result {
    let m = &core.metrics;
    out.one(Name::ReportsAccepted, float(m.reports_accepted.get()))?;
    let reasons = ReportReason::ALL.map(ReportReason::as_str);
    out.counts(Name::ReportsRejected, "reason", &reasons, &m.reports_rejected)?;
    out.one(Name::ReportEvents, float(m.report_events.get()))?;
    let now = Instant::now();
    let store = core.store();
    let ages = store.entries().map(|(node, part, e)| {
        let age = now.saturating_duration_since(e.received).as_secs_f64();
        ([("node", node), ("part", part)], age)
    });
    out.series(Name::ReportAge, ages)?;
    let connected = store.entries().map(|(node, part, e)| {
        ([("node", node), ("part", part)], if e.stream.is_some() { 1.0 } else { 0.0 })
    });
    out.series(Name::NodeConnected, connected)
}

fn proxies(out: &mut Out<'_>, core: &Core) -> fmt::Result {
    let results = FeedbackResult::ALL.map(FeedbackResult::as_str);
    out.counts(Name::Feedback, "result", &results, &core.metrics.feedback)?;
    let proxies = core.proxies();
    let by_state = ConfigState::ALL.map(|state| {
        let count = proxies.iter().filter(|p| p.hello.config == state).count();
        ([("config", state.as_str())], float(u64::try_from(count).unwrap_or(u64::MAX)))
    });
    out.series(Name::Proxies, by_state)?;
    let rung = proxies.iter().map(|p| p.rung).max().unwrap_or(0);
    out.one(Name::ProxyRungMax, rung.into())
}

fn discovery(out: &mut Out<'_>, core: &Core) -> fmt::Result {
    let status = core.discovery();
    out.one(Name::DiscoveryCurrent, if status.current { 1.0 } else { 0.0 })?;
    out.one(Name::DiscoveryLoads, float(status.loads))?;
    out.one(Name::DiscoveryRefusals, float(status.refusals))
}

fn fleet(out: &mut Out<'_>, core: &Core, snapshot: &Snapshot) -> fmt::Result {
    let services = || snapshot.services.iter();
    let rates = services().filter_map(|s| Some(([("service", s.name.as_str())], s.arrival_rate?)));
    out.series(Name::ServiceArrivalRate, rates)?;
    let users = services().map(|s| ([("service", s.name.as_str())], f64::from(s.proxies_live)));
    out.series(Name::ServiceProxies, users)?;
    let per_endpoint: [(Name, ValueOf); 7] = [
        (Name::EndpointWeight, |e| Some(e.weight.get().into())),
        (Name::EndpointShare, |e| Some(e.explanation.share)),
        (Name::EndpointGate, |e| Some(e.gate.ratio())),
        (Name::EndpointUp, |e| Some(if e.hard == HardState::Up { 1.0 } else { 0.0 })),
        (Name::EndpointInFlight, |e| e.in_flight.map(f64::from)),
        (Name::EndpointSlots, |e| e.slots.map(f64::from)),
        (Name::EndpointAge, |e| e.age.map(|age| age.as_secs_f64())),
    ];
    for (name, value) in per_endpoint {
        let series = services().flat_map(|s| {
            s.endpoints.iter().filter_map(move |e| {
                let labels =
                    [("service", s.name.as_str()), ("endpoint", e.endpoint.address.as_str())];
                Some((labels, value(&e.endpoint)?))
            })
        });
        out.series(name, series)?;
    }
    let proxies = core.proxies();
    let outcomes = services().flat_map(|s| {
        let proxies = &proxies;
        s.endpoints.iter().flat_map(move |e| {
            let address = e.endpoint.address.as_str();
            let sums = proxies.sums(&s.name, address).unwrap_or_default();
            [
                ("ok", sums.ok),
                ("busy", sums.busy),
                ("broken", sums.broken),
                ("cancelled", sums.cancelled),
            ]
            .map(|(outcome, count)| {
                let labels =
                    [("service", s.name.as_str()), ("endpoint", address), ("outcome", outcome)];
                (labels, float(count))
            })
        })
    });
    out.series(Name::EndpointOutcomes, outcomes)?;
    let alarms = ALARM_KINDS.map(|kind| {
        let count = snapshot.alarms.iter().map(Alarm::as_str).filter(|k| *k == kind).count();
        ([("kind", kind)], float(u64::try_from(count).unwrap_or(u64::MAX)))
    });
    out.series(Name::Alarms, alarms)
}

/// Reads one number of an endpoint; unknown is no series.
type ValueOf = fn(&EndpointSnapshot) -> Option<f64>;

struct Out<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Out<'_> {
    fn one(&mut self, name: Name, value: f64) -> fmt::Result {
        let mut encoder = self.describe(name)?;
        put(&mut encoder, name.kind(), value)
    }

    fn counts<const N: usize>(
        &mut self,
        name: Name,
        label: &'static str,
        values: &[&'static str; N],
        counts: &Counts<N>,
    ) -> fmt::Result {
        let all = values.iter().enumerate().map(|(place, value)| {
            ([(label, *value)], float(counts.at(place).map_or(0, super::Count::get)))
        });
        self.series(name, all)
    }

    fn series<'l, const N: usize>(
        &mut self,
        name: Name,
        series: impl IntoIterator<Item = ([(&'static str, &'l str); N], f64)>,
    ) -> fmt::Result {
        let mut encoder = self.describe(name)?;
        for (labels, value) in series {
            put(&mut encoder.encode_family(&labels)?, name.kind(), value)?;
        }
        Ok(())
    }

    fn describe(&mut self, name: Name) -> Result<MetricEncoder<'_>, fmt::Error> {
        let kind = match name.kind() {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        self.encoder.encode_descriptor(name.as_str(), name.help(), None, kind)
    }
}

fn put(encoder: &mut MetricEncoder<'_>, kind: Kind, value: f64) -> fmt::Result {
    match kind {
        Kind::Gauge => encoder.encode_gauge(&value),
        Kind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
    }
}

#[expect(clippy::as_conversions, reason = "a count above 2^53 may lose its last digits")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
