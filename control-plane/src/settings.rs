//! The operator's part of weighting: section `weighting` of the configuration.

use tidegate_policy::units::Span;
use tidegate_strict::{ConfigError, Need, Node};
use tidegate_weighting::{
    Settings, TypeCapacity,
    entropy::{Indicator, Prior},
    xid::XidVerdict,
};

use crate::config::rule;

/// GPU types and Xid codes that an operator may list.
const LIST_MAX: usize = 64;
/// NVIDIA's catalogue ends far below.
const XID_CODE_MAX: u64 = 65_535;

const VERDICTS: [(&str, XidVerdict); 9] = [
    ("ignore", XidVerdict::Ignore),
    ("application", XidVerdict::Application),
    ("contained", XidVerdict::Contained),
    ("remap_pending", XidVerdict::RemapPending),
    ("degraded", XidVerdict::Degraded),
    ("fatal_when_repeated", XidVerdict::FatalWhenRepeated),
    ("link", XidVerdict::Link),
    ("fatal", XidVerdict::Fatal),
    ("bus_lost", XidVerdict::BusLost),
];

/// Reads the section.
pub(crate) fn read(n: &mut Node<'_>) -> Settings {
    let defaults = Settings::default();
    let prior = n.object(
        "prior",
        "weight of each indicator before the data speaks; only the ratio counts",
        |n| {
            let mut prior = Prior::default();
            for (weight, indicator) in prior.0.iter_mut().zip(Indicator::ALL) {
                *weight =
                    n.number(indicator.as_str(), 0.0..=1.0, Need::Default(*weight), "its weight");
            }
            prior
        },
    );
    let capacities =
        n.list("capacities", 0..=LIST_MAX, "GPU types, looked at before the built-in table", |n| {
            TypeCapacity {
                name_contains: n.text(
                    "name_contains",
                    64,
                    Need::Required,
                    "part of the driver's product name; case does not matter",
                ),
                capacity: n.number(
                    "capacity",
                    0.01..=1_000.0,
                    Need::Required,
                    "throughput relative to one A100",
                ),
            }
        });
    let xids = n.list("xids", 0..=LIST_MAX, "verdicts, looked at before the built-in table", |n| {
        let code = n.int("code", 0..=XID_CODE_MAX, Need::Required, "code of the Xid");
        let verdict =
            n.choice("verdict", &VERDICTS, ("ignore", XidVerdict::Ignore), "what it means");
        (u32::try_from(code).unwrap_or(u32::MAX), verdict)
    });
    let ttft_objective = Span::ms(n.int(
        "ttft_objective_ms",
        10..=600_000,
        Need::Default(defaults.ttft_objective.as_ms()),
        "95th percentile of the time to first token that counts as entirely bad",
    ));
    Settings { prior, capacities, xids, ttft_objective }
}

/// Rules over several fields.
pub(crate) fn broken_rules(settings: &Settings) -> Option<ConfigError> {
    let sum: f64 = settings.prior.0.iter().sum();
    (sum <= 0.0).then(|| {
        rule("weighting.prior".into(), "all weights are 0; at least one must be above".into())
    })
}
