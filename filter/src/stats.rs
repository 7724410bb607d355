//! The metrics of the filter: every name stands in [`Metric`], nowhere else.
//!
//! Envoy shares a metric by its name over all VMs: counters add up, a gauge keeps the last value
//! written. So a gauge that describes the process is written by the watcher VM alone. Labels travel in
//! the name (`name.service=llm.reason=spread`) and become labels by the `stats_tags` of
//! `istio/standalone/envoy.yaml`. A name is defined when first used, so a metric that is absent never
//! happened; ids are kept, since defining again costs seven times an increment.

use crate::host;
use proxy_wasm::types::MetricType;
use std::collections::BTreeMap;

/// One metric; the label that follows the service is in its doc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Requests by service and `decision`: steered, observed, passed, answered.
    Requests,
    /// The same requests by `reason`: how the endpoint was picked, why the request passed or was answered.
    Picks,
    /// Ended requests by service and `outcome`.
    Outcomes,
    /// Tries after the first, by service.
    Retries,
    /// Answered requests that did not go where the list said: the pool lacks the endpoint, or Envoy does
    /// not obey the header.
    Misses,
    /// Rung of the degradation ladder, by service; 0 is the full algorithm.
    Rung,
    /// Time since the last fleet update arrived.
    SnapshotAge,
    /// The stream to the control plane: 0 none, 1 opened, 2 talking.
    StreamState,
    /// Streams ended, by `reason`.
    StreamEnds,
    /// The configuration: 1 in force, 2 refused with the last good one in force, 3 pass-through.
    ConfigState,
    /// Fleet updates applied.
    Updates,
    /// Messages of the control plane that were refused, by `reason`.
    DecodeErrors,
    /// Feedback messages sent.
    Feedback,
}

impl Metric {
    pub const ALL: [Self; 13] = [
        Self::Requests,
        Self::Picks,
        Self::Outcomes,
        Self::Retries,
        Self::Misses,
        Self::Rung,
        Self::SnapshotAge,
        Self::StreamState,
        Self::StreamEnds,
        Self::ConfigState,
        Self::Updates,
        Self::DecodeErrors,
        Self::Feedback,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "tidegate_requests_total",
            Self::Picks => "tidegate_picks_total",
            Self::Outcomes => "tidegate_outcomes_total",
            Self::Retries => "tidegate_retries_total",
            Self::Misses => "tidegate_misses_total",
            Self::Rung => "tidegate_ladder_rung",
            Self::SnapshotAge => "tidegate_snapshot_age_ms",
            Self::StreamState => "tidegate_stream_state",
            Self::StreamEnds => "tidegate_stream_ends_total",
            Self::ConfigState => "tidegate_config_state",
            Self::Updates => "tidegate_updates_total",
            Self::DecodeErrors => "tidegate_decode_errors_total",
            Self::Feedback => "tidegate_feedback_total",
        }
    }

    /// The name of the label that a value is given for, if it has one.
    #[must_use]
    pub const fn label(self) -> Option<&'static str> {
        match self {
            Self::Requests => Some("decision"),
            Self::Outcomes => Some("outcome"),
            Self::Picks | Self::StreamEnds | Self::DecodeErrors => Some("reason"),
            Self::Retries
            | Self::Misses
            | Self::Rung
            | Self::SnapshotAge
            | Self::StreamState
            | Self::ConfigState
            | Self::Updates
            | Self::Feedback => None,
        }
    }

    /// The full name as Envoy sees it.
    #[must_use]
    pub fn full_name(self, service: Option<&str>, value: &str) -> String {
        let mut name = String::from(self.name());
        for (label, value) in [(Some("service"), service), (self.label(), Some(value))] {
            if let (Some(label), Some(value)) = (label, value) {
                name.extend([".", label, "=", value]);
            }
        }
        name
    }
}

/// The service a metric belongs to, by its index in the configuration.
pub(crate) type ServiceLabel<'a> = Option<(u16, &'a str)>;

/// The ids of the metrics used so far in this VM.
#[derive(Default)]
pub(crate) struct Stats {
    ids: BTreeMap<(Metric, Option<u16>, &'static str), u32>,
}

impl Stats {
    pub(crate) fn count(&mut self, metric: Metric, service: ServiceLabel<'_>, value: &'static str) {
        self.add(metric, service, value, 1);
    }

    pub(crate) fn add(
        &mut self,
        metric: Metric,
        service: ServiceLabel<'_>,
        value: &'static str,
        by: u32,
    ) {
        if let Some(id) = self.id(MetricType::Counter, metric, service, value) {
            host::count(id, by.into());
        }
    }

    pub(crate) fn set(&mut self, metric: Metric, service: ServiceLabel<'_>, to: u64) {
        if let Some(id) = self.id(MetricType::Gauge, metric, service, "") {
            host::gauge(id, to);
        }
    }

    fn id(
        &mut self,
        kind: MetricType,
        metric: Metric,
        service: ServiceLabel<'_>,
        value: &'static str,
    ) -> Option<u32> {
        let key = (metric, service.map(|(index, _)| index), value);
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let name = metric.full_name(service.map(|(_, name)| name), value);
        let id = host::metric(kind, &name)?;
        self.ids.insert(key, id);
        Some(id)
    }
}
