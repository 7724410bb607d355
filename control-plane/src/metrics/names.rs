//! Names, kinds and helps of all metrics.

/// What kind of series it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// The encoder adds `_total` to the name.
    Counter,
}

macro_rules! names {
    ($($variant:ident, $kind:ident, $name:literal, $help:literal;)*) => {
        /// Every metric of the control plane.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Name { $($variant),* }

        impl Name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }

            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind),* }
            }
        }
    };
}

names! {
    BuildInfo, Gauge, "tidegate_build_info", "Always 1; the version is a label";
    Ready, Gauge, "tidegate_ready", "1 while proxies are served from current discovery";
    Uptime, Gauge, "tidegate_uptime_seconds", "Time since this process started";
    Epoch, Gauge, "tidegate_snapshot_epoch", "Number of the newest snapshot";
    Steps, Counter, "tidegate_steps", "Weighting steps, by what made them happen";
    StepSeconds, Counter, "tidegate_step_seconds", "Time spent in weighting steps";
    PushMessages, Counter, "tidegate_push_messages", "Updates sent to proxies, by what they held";
    PushBytes, Counter, "tidegate_push_bytes", "Size of the updates sent to proxies";
    Connections, Gauge, "tidegate_connections", "gRPC connections that are open";
    ConnectionsRefused, Counter, "tidegate_connections_refused", "gRPC connections above the limit";
    Streams, Gauge, "tidegate_streams", "Streams that are open, by kind";
    StreamsRefused, Counter, "tidegate_streams_refused", "New streams refused, by reason";
    StreamsEnded, Counter, "tidegate_streams_ended", "Streams that ended, by reason";
    ReportsAccepted, Counter, "tidegate_reports_accepted", "Reports taken into the store";
    ReportsRejected, Counter, "tidegate_reports_rejected", "Reports that changed nothing, by reason";
    ReportEvents, Counter, "tidegate_report_events", "Reports whose news went out before the period";
    ReportAge, Gauge, "tidegate_report_age_seconds", "Time since the newest report, by node";
    NodeConnected, Gauge, "tidegate_node_connected", "1 while the node's reporter has a stream";
    Feedback, Counter, "tidegate_feedback", "Feedback messages of proxies, by result";
    Proxies, Gauge, "tidegate_proxies", "Proxies connected, by state of their configuration";
    ProxyRungMax, Gauge, "tidegate_proxy_rung_max", "Worst rung of the degradation ladder among proxies";
    DiscoveryCurrent, Gauge, "tidegate_discovery_current", "0 while a newer discovery file is refused";
    DiscoveryLoads, Counter, "tidegate_discovery_loads", "Discovery files put in force";
    DiscoveryRefusals, Counter, "tidegate_discovery_refusals", "Discovery files refused";
    ServiceArrivalRate, Gauge, "tidegate_service_arrivals_per_second", "Requests a second of all proxies";
    ServiceProxies, Gauge, "tidegate_service_proxies", "Proxies that use the service";
    EndpointWeight, Gauge, "tidegate_endpoint_weight", "Weight pushed to proxies, 1 to 10000";
    EndpointShare, Gauge, "tidegate_endpoint_share_ratio", "Part of the service's traffic aimed at";
    EndpointGate, Gauge, "tidegate_endpoint_gate_ratio", "Part of usual traffic that health allows";
    EndpointUp, Gauge, "tidegate_endpoint_up", "0 while the endpoint is down or draining";
    EndpointInFlight, Gauge, "tidegate_endpoint_in_flight", "Requests running or waiting, all proxies";
    EndpointSlots, Gauge, "tidegate_endpoint_slots", "Requests that run before queueing starts";
    EndpointAge, Gauge, "tidegate_endpoint_data_age_seconds", "Age of the data behind the weight";
    EndpointOutcomes, Counter, "tidegate_endpoint_outcomes", "Requests ended, as proxies saw them";
    Alarms, Gauge, "tidegate_alarms", "Alarms that are on, by kind";
}
