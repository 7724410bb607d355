//! Numbered snapshots of the fleet: what changed when.
//!
//! Each step makes one snapshot with the next epoch, whether or not anything changed, so that a frozen
//! control plane is noticed within a period. Every endpoint carries the epoch of its last change, and
//! what is gone leaves a mark with its epoch; so a stream needs to remember one number, the epoch it
//! sent last, and gets from any snapshot either the changes since then or everything. A reader that is
//! slow skips snapshots and loses nothing.
//!
//! New data is a change even where the numbers are the same: the filter must see that it is fresh.
//! The instance is random per process: epochs of different instances do not compare.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tidegate_policy::units::Time;
use tidegate_weighting::{Alarm, EndpointSnapshot, FleetSnapshot};

/// Marks of what is gone that are kept; a stream that is further behind gets everything.
const GONE_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub instance: u64,
    pub epoch: u64,
    pub at: Time,
    pub period: Duration,
    pub proxies_live: u32,
    pub services: Vec<PublishedService>,
    pub alarms: Vec<Alarm>,
    gone: Vec<Gone>,
    /// Changes since an earlier epoch are not known any more.
    changes_from: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PublishedService {
    pub name: String,
    pub arrival_rate: Option<f64>,
    pub mean_service_ms: Option<u64>,
    pub proxies_live: u32,
    /// Epoch of the last change of the fields above.
    pub changed: u64,
    pub endpoints: Vec<PublishedEndpoint>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PublishedEndpoint {
    pub endpoint: EndpointSnapshot,
    pub changed: u64,
    sampled: Option<Time>,
    healthy_since: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) epoch: u64,
    pub(crate) service: String,
    /// Absent: the whole service is gone.
    pub(crate) endpoint: Option<String>,
}

impl Snapshot {
    /// What stands before the first step.
    #[must_use]
    pub fn empty(instance: u64, period: Duration) -> Self {
        Self {
            instance,
            epoch: 0,
            at: Time::ms(0),
            period,
            proxies_live: 0,
            services: Vec::new(),
            alarms: Vec::new(),
            gone: Vec::new(),
            changes_from: 0,
        }
    }

    /// The snapshot after this one.
    #[must_use]
    pub fn next(&self, now: Time, fleet: FleetSnapshot, proxies_live: u32) -> Self {
        let epoch = self.epoch.saturating_add(1);
        let mut gone = self.gone.clone();
        let mut changes_from = self.changes_from;
        let mut old: BTreeMap<&str, &PublishedService> =
            self.services.iter().map(|s| (s.name.as_str(), s)).collect();
        let mut services = Vec::with_capacity(fleet.services.len());
        for service in fleet.services {
            let before = old.remove(service.name.as_str());
            if before.is_none() && gone.iter().any(|g| g.is_service(&service.name)) {
                // Gone and back: whoever missed that must not mix both lives of the service.
                gone.retain(|g| g.service != service.name);
                changes_from = epoch;
            }
            let mut known: BTreeMap<&str, &PublishedEndpoint> = before
                .iter()
                .flat_map(|s| &s.endpoints)
                .map(|e| (e.endpoint.address.as_str(), e))
                .collect();
            let mut endpoints = Vec::with_capacity(service.endpoints.len());
            for endpoint in service.endpoints {
                let before = known.remove(endpoint.address.as_str());
                endpoints.push(PublishedEndpoint::new(now, epoch, endpoint, before));
            }
            if gone.iter().any(|g| g.service == service.name) {
                let there: BTreeSet<&str> =
                    endpoints.iter().map(|e| e.endpoint.address.as_str()).collect();
                gone.retain(|g| g.service != service.name || !g.is_endpoint_of(&there));
            }
            gone.extend(known.into_keys().map(|address| Gone {
                epoch,
                service: service.name.clone(),
                endpoint: Some(address.into()),
            }));
            let mut published = PublishedService {
                name: service.name,
                arrival_rate: service.arrival_rate,
                mean_service_ms: service.mean_service.map(|s| s.as_ms()),
                proxies_live: service.proxies_live,
                changed: epoch,
                endpoints,
            };
            published.changed = published.last_change(before, epoch);
            services.push(published);
        }
        for name in old.into_keys() {
            gone.retain(|g| g.service != name);
            gone.push(Gone { epoch, service: name.into(), endpoint: None });
        }
        let surplus = gone.len().saturating_sub(GONE_MAX);
        for forgotten in gone.drain(..surplus) {
            changes_from = changes_from.max(forgotten.epoch);
        }
        Self {
            instance: self.instance,
            epoch,
            at: now,
            period: self.period,
            proxies_live,
            services,
            alarms: fleet.alarms,
            gone,
            changes_from,
        }
    }

    /// Whether the changes since this epoch are known.
    #[must_use]
    pub fn knows_changes_since(&self, epoch: u64) -> bool {
        epoch >= self.changes_from && epoch <= self.epoch
    }

    pub(crate) fn gone_since(&self, epoch: u64) -> impl Iterator<Item = &Gone> {
        self.gone.iter().filter(move |g| g.epoch > epoch)
    }

    /// The endpoint with this address in each service that has it.
    pub fn find(
        &self,
        address: &str,
    ) -> impl Iterator<Item = (&PublishedService, &EndpointSnapshot)> {
        self.services.iter().flat_map(move |s| {
            let of_service = s.endpoints.iter().map(move |e| (s, &e.endpoint));
            of_service.filter(move |(_, e)| e.address == address)
        })
    }
}

impl Gone {
    fn is_endpoint_of(&self, there: &BTreeSet<&str>) -> bool {
        self.endpoint.as_ref().is_some_and(|address| there.contains(address.as_str()))
    }

    fn is_service(&self, name: &str) -> bool {
        self.endpoint.is_none() && self.service == name
    }
}

impl PublishedService {
    fn last_change(&self, before: Option<&Self>, epoch: u64) -> u64 {
        match before {
            Some(b)
                if b.arrival_rate == self.arrival_rate
                    && b.mean_service_ms == self.mean_service_ms =>
            {
                b.changed
            }
            _ => epoch,
        }
    }
}

impl PublishedEndpoint {
    fn new(now: Time, epoch: u64, endpoint: EndpointSnapshot, before: Option<&Self>) -> Self {
        let sampled = endpoint.age.map(|age| now.minus(age));
        let healthy_since = endpoint.healthy_for.map(|span| now.minus(span));
        let changed = match before {
            Some(b)
                if b.sampled == sampled
                    && b.healthy_since == healthy_since
                    && is_same(&b.endpoint, &endpoint) =>
            {
                b.changed
            }
            _ => epoch,
        };
        Self { endpoint, changed, sampled, healthy_since }
    }
}

/// Whether two states of an endpoint look the same to a proxy, their ages apart.
fn is_same(a: &EndpointSnapshot, b: &EndpointSnapshot) -> bool {
    let seen = |e: &EndpointSnapshot| {
        (e.weight, e.type_weight, e.gate, e.hard, e.in_flight, e.slots, e.success, e.memory_free)
    };
    seen(a) == seen(b) && a.node == b.node && a.gpu_type == b.gpu_type
}

#[cfg(test)]
pub(crate) mod tests;
