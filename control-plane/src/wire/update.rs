//! From a snapshot to the message that one proxy gets.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_policy::{config::SLOW_START_MS_MAX, units::Span};
use tidegate_proto::v1;
use tidegate_weighting::{EndpointSnapshot, HardState};

use crate::publish::Snapshot;

/// Beyond this a slow start is over for every filter.
const HEALTHY_FOR_MAX: Span = Span::ms(SLOW_START_MS_MAX);

/// The services that a proxy wants to know about; empty is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest(pub BTreeSet<String>);

impl Interest {
    #[must_use]
    pub fn covers(&self, service: &str) -> bool {
        self.0.is_empty() || self.0.contains(service)
    }
}

/// The changes since the epoch `since`, or everything where that is absent or too long ago.
#[must_use]
pub fn update(snapshot: &Snapshot, since: Option<u64>, interest: &Interest) -> v1::FleetUpdate {
    let since = since.filter(|epoch| snapshot.knows_changes_since(*epoch));
    let mut services_removed = Vec::new();
    let mut endpoints_removed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    if let Some(since) = since {
        for gone in snapshot.gone_since(since).filter(|g| interest.covers(&g.service)) {
            match &gone.endpoint {
                Some(address) => {
                    endpoints_removed.entry(&gone.service).or_default().push(address.clone());
                }
                None => services_removed.push(gone.service.clone()),
            }
        }
    }
    let is_news = |changed: u64| since.is_none_or(|since| changed > since);
    let mut services = Vec::new();
    for service in snapshot.services.iter().filter(|s| interest.covers(&s.name)) {
        let endpoints: Vec<v1::Endpoint> = service
            .endpoints
            .iter()
            .filter(|e| is_news(e.changed))
            .map(|e| endpoint(&e.endpoint))
            .collect();
        let removed = endpoints_removed.remove(service.name.as_str()).unwrap_or_default();
        if since.is_none()
            || is_news(service.changed)
            || !endpoints.is_empty()
            || !removed.is_empty()
        {
            services.push(v1::Service {
                name: service.name.clone(),
                arrival_rate: service.arrival_rate,
                endpoints,
                endpoints_removed: removed,
                mean_service_ms: service.mean_service_ms.map(saturated),
            });
        }
    }
    v1::FleetUpdate {
        epoch: snapshot.epoch,
        instance: snapshot.instance,
        period_ms: saturated(snapshot.period.as_millis()),
        proxies_live: snapshot.proxies_live,
        full: since.is_none(),
        services,
        services_removed,
    }
}

fn endpoint(e: &EndpointSnapshot) -> v1::Endpoint {
    let hard = match e.hard {
        HardState::Up => v1::HardState::Up,
        HardState::Draining => v1::HardState::Draining,
        HardState::Down => v1::HardState::Down,
    };
    v1::Endpoint {
        address: e.address.clone(),
        weight: e.weight.get().into(),
        in_flight: e.in_flight,
        slots: e.slots,
        gate_pm: e.gate.get().into(),
        success_bp: e.success.map(|s| s.get().into()),
        age_ms: e.age.map(|age| saturated(age.as_ms())),
        hard: hard.into(),
        node: e.node.clone().unwrap_or_default(),
        gpu_type: e.gpu_type.clone().unwrap_or_default(),
        type_weight: e.type_weight.get().into(),
        memory_free_bp: e.memory_free.map(|m| m.get().into()),
        healthy_for_ms: e
            .healthy_for
            .filter(|span| *span <= HEALTHY_FOR_MAX)
            .map(|span| saturated(span.as_ms())),
    }
}

fn saturated<T: TryInto<u32>>(value: T) -> u32 {
    value.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
