//! Why an endpoint has its weight, as `/api/explain` and `tidegate explain` show it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_weighting::{Clears, EndpointSnapshot};

use super::view::{self, EndpointView, Gpus};
use crate::{core::Core, text::short};

/// One entry per service that has the endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainView {
    pub endpoint: String,
    pub explanations: Vec<ServiceExplanation>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceExplanation {
    pub service: String,
    pub state: EndpointView,
    /// Each number of the calculation, in its order.
    pub factors: Vec<Factor>,
    /// What lowers the gate, in words.
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Factor {
    pub name: String,
    pub value: f64,
}

/// Explains an endpoint; `None` when no service has it.
#[must_use]
pub fn of(core: &Arc<Core>, address: &str) -> Option<ExplainView> {
    let snapshot = core.snapshot()?;
    let directory = core.directory();
    let explanations: Vec<ServiceExplanation> = snapshot
        .find(address)
        .map(|(service, e)| {
            let gpus = Gpus::of(&core.store(), directory.as_deref(), &service.name).at(address);
            let sums = core.proxies().sums(&service.name, address).unwrap_or_default();
            ServiceExplanation {
                service: service.name.clone(),
                state: view::endpoint(e, view::taken_by_all(service), gpus, sums),
                factors: factors(e),
                reasons: reasons(core, e),
            }
        })
        .collect();
    let endpoint = address.into();
    (!explanations.is_empty()).then_some(ExplainView { endpoint, explanations })
}

fn factors(e: &EndpointSnapshot) -> Vec<Factor> {
    let mut rows = e.explanation.rows();
    rows.push(("gate.published".into(), e.gate.ratio()));
    rows.push(("weight.type".into(), e.type_weight.get().into()));
    rows.push(("weight.published".into(), e.weight.get().into()));
    rows.into_iter().map(|(name, value)| Factor { name, value }).collect()
}

fn reasons(core: &Core, e: &EndpointSnapshot) -> Vec<String> {
    let now = core.time(tokio::time::Instant::now());
    let gates = e.explanation.gates.iter().map(|factor| {
        let mut text = format!("{} ×{}", factor.reason.as_str(), short(factor.value));
        if let Some(measured) = factor.measured {
            text.push_str(&format!(", measured {}", short(measured)));
        }
        if let Some(gpu) = &factor.gpu {
            text.push_str(&format!(", on {gpu}"));
        }
        if let Some(since) = factor.since {
            text.push_str(&format!(", for {} s", now.since(since).as_ms() / 1_000));
        }
        match factor.clears {
            Clears::WithCondition => {}
            Clears::WithReset => text.push_str(", until the GPU is reset"),
            Clears::At(end) => {
                text.push_str(&format!(", for {} s more", end.since(now).as_ms() / 1_000));
            }
        }
        text
    });
    let held = e.explanation.held.map(|h| format!("{}: the last good value is held", h.as_str()));
    gates.chain(held).collect()
}
