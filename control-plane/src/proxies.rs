//! Which proxies are connected, and what they count together.
//!
//! In-flight counts are the present state of a proxy: its newest feedback replaces the one before, and
//! they end with its stream, or when it is connected but silent for too long. Outcomes and arrivals are
//! history: they add up over all proxies and stay. Sums are kept as differences come in, so a step
//! over 1,000 proxies costs no more than one over ten.
//!
//! Bounds: one entry per open stream; sums only for endpoints that discovery names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tidegate_weighting::input::{EndpointFeedback, ServiceFeedback};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    discovery::Directory,
    store::{Stream, StreamId},
};

/// What a proxy says when its stream starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub proxy_id: String,
    pub filter_version: String,
    /// Empty is every service.
    pub services: BTreeSet<String>,
    pub config: ConfigState,
    pub config_error: String,
}

/// Which configuration a filter runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigState {
    #[default]
    Unknown,
    Ok,
    /// A newer one was refused.
    LastGood,
    /// None was ever good: requests pass untouched.
    PassThrough,
}

impl ConfigState {
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Ok, Self::LastGood, Self::PassThrough];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::LastGood => "last_good",
            Self::PassThrough => "pass_through",
        }
    }
}

/// One period of one proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    pub sequence: u64,
    pub config: ConfigState,
    pub config_error: String,
    pub rung: u32,
    pub services: Vec<ServiceCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    pub service: String,
    pub arrivals: u64,
    pub endpoints: Vec<EndpointCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    pub endpoint: String,
    pub in_flight: u32,
    pub ok: u64,
    pub busy: u64,
    pub broken: u64,
    pub cancelled: u64,
    pub ttft_ms_sum: u64,
    pub ttft_count: u64,
}

/// One connected proxy, as status shows it.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub hello: Hello,
    pub connected: Instant,
    pub heard: Instant,
    pub rung: u32,
    /// Of the newest feedback.
    pub sequence: Option<u64>,
    pub in_flight: HashMap<(String, String), u32>,
    stop: CancellationToken,
}

/// Sums over all proxies at one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub in_flight: u64,
    pub ok: u64,
    pub busy: u64,
    pub broken: u64,
    pub cancelled: u64,
    pub ttft_ms: u64,
    pub ttft_count: u64,
}

#[derive(Debug, Default)]
pub struct Proxies {
    proxies: BTreeMap<StreamId, Proxy>,
    sums: BTreeMap<String, BTreeMap<String, Sums>>,
    arrivals: BTreeMap<String, u64>,
}

impl Proxies {
    /// Notes a proxy that has said hello. An older stream of the same proxy is stopped, so that
    /// nothing counts twice while a dead connection lingers.
    pub fn open(&mut self, now: Instant, stream: &Stream, hello: Hello) {
        let is_old =
            |(id, p): &(&StreamId, &Proxy)| **id != stream.id && p.hello.proxy_id == hello.proxy_id;
        let old: Vec<StreamId> = self.proxies.iter().filter(is_old).map(|(id, _)| *id).collect();
        for id in old {
            if let Some(proxy) = self.close(id) {
                proxy.stop.cancel();
            }
        }
        if let Some(known) = self.proxies.get_mut(&stream.id) {
            // Said again on the same stream: other services or another configuration.
            known.hello = hello;
            known.heard = now;
            return;
        }
        let proxy = Proxy {
            hello,
            connected: now,
            heard: now,
            rung: 0,
            sequence: None,
            in_flight: HashMap::new(),
            stop: stream.stop.clone(),
        };
        self.proxies.insert(stream.id, proxy);
    }

    /// Ends a proxy's contribution.
    pub fn close(&mut self, stream: StreamId) -> Option<Proxy> {
        let proxy = self.proxies.remove(&stream)?;
        self.withdraw(&proxy.in_flight);
        Some(proxy)
    }

    /// Takes one period of counts; gives whether it was newer than the one before.
    pub fn feedback(&mut self, now: Instant, stream: StreamId, feedback: Feedback) -> bool {
        let Some(proxy) = self.proxies.get_mut(&stream) else { return false };
        if proxy.sequence.is_some_and(|newest| feedback.sequence <= newest) {
            return false;
        }
        proxy.sequence = Some(feedback.sequence);
        proxy.heard = now;
        proxy.rung = feedback.rung;
        proxy.hello.config = feedback.config;
        proxy.hello.config_error = feedback.config_error;
        let old = std::mem::take(&mut proxy.in_flight);
        self.withdraw(&old);
        let mut in_flight = HashMap::new();
        for service in feedback.services {
            let Some(sums) = self.sums.get_mut(&service.service) else { continue };
            let arrivals = self.arrivals.entry(service.service.clone()).or_default();
            *arrivals = arrivals.saturating_add(service.arrivals);
            for counts in service.endpoints {
                let Some(sum) = sums.get_mut(&counts.endpoint) else { continue };
                sum.add(&counts);
                if counts.in_flight > 0 {
                    let key = (service.service.clone(), counts.endpoint);
                    let held: &mut u32 = in_flight.entry(key).or_default();
                    // One name listed twice adds up in both places.
                    *held = held.saturating_add(counts.in_flight);
                }
            }
        }
        if let Some(proxy) = self.proxies.get_mut(&stream) {
            proxy.in_flight = in_flight;
        }
        true
    }

    /// Takes back the counts of proxies that are connected but silent.
    pub fn expire(&mut self, now: Instant, expiry: Duration) {
        let silent: Vec<_> = self
            .proxies
            .values_mut()
            .filter(|p| now.saturating_duration_since(p.heard) >= expiry)
            .map(|p| std::mem::take(&mut p.in_flight))
            .collect();
        for in_flight in &silent {
            self.withdraw(in_flight);
        }
    }

    /// Keeps sums for exactly the endpoints of this directory.
    pub fn direct(&mut self, directory: &Directory) {
        let mut old = std::mem::take(&mut self.sums);
        for service in &directory.services {
            let mut old = old.remove(&service.name).unwrap_or_default();
            let sums = service
                .endpoints
                .iter()
                .map(|e| (e.address.clone(), old.remove(&e.address).unwrap_or_default()));
            self.sums.insert(service.name.clone(), sums.collect());
        }
        let sums = &self.sums;
        self.arrivals.retain(|service, _| sums.contains_key(service));
        for proxy in self.proxies.values_mut() {
            proxy.in_flight.retain(|(service, endpoint), _| {
                sums.get(service).is_some_and(|s| s.contains_key(endpoint))
            });
        }
    }

    /// Sums per endpoint, as weighting reads them.
    #[must_use]
    pub fn endpoint_sums(&self, now: Instant, expiry: Duration) -> Vec<EndpointFeedback> {
        let mut all = Vec::new();
        for (service, endpoints) in &self.sums {
            let known = self.users(service).any(|p| p.is_heard(now, expiry));
            for (address, sum) in endpoints {
                all.push(EndpointFeedback {
                    service: service.clone(),
                    address: address.clone(),
                    in_flight: known.then(|| u32::try_from(sum.in_flight).unwrap_or(u32::MAX)),
                    ok_total: sum.ok,
                    busy_total: sum.busy,
                    broken_total: sum.broken,
                    cancelled_total: sum.cancelled,
                });
            }
        }
        all
    }

    /// Sums per service, as weighting reads them.
    #[must_use]
    pub fn service_sums(&self) -> Vec<ServiceFeedback> {
        self.sums
            .keys()
            .map(|service| ServiceFeedback {
                service: service.clone(),
                arrivals_total: self.arrivals.get(service).copied().unwrap_or(0),
                proxies_live: u32::try_from(self.users(service).count()).unwrap_or(u32::MAX),
            })
            .collect()
    }

    /// Sums at one endpoint.
    #[must_use]
    pub fn sums(&self, service: &str, endpoint: &str) -> Option<Sums> {
        self.sums.get(service)?.get(endpoint).copied()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.proxies.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.proxies.is_empty()
    }

    /// All connected proxies, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = &Proxy> {
        self.proxies.values()
    }

    fn users(&self, service: &str) -> impl Iterator<Item = &Proxy> {
        self.proxies.values().filter(move |p| p.uses(service))
    }

    fn withdraw(&mut self, in_flight: &HashMap<(String, String), u32>) {
        for ((service, endpoint), count) in in_flight {
            if let Some(sum) = self.sums.get_mut(service).and_then(|s| s.get_mut(endpoint)) {
                sum.in_flight = sum.in_flight.saturating_sub(u64::from(*count));
            }
        }
    }
}

impl Proxy {
    fn uses(&self, service: &str) -> bool {
        self.hello.services.is_empty() || self.hello.services.contains(service)
    }

    /// Whether its counts are known: it has sent feedback, and not too long ago.
    fn is_heard(&self, now: Instant, expiry: Duration) -> bool {
        self.sequence.is_some() && now.saturating_duration_since(self.heard) < expiry
    }
}

impl Sums {
    fn add(&mut self, counts: &EndpointCounts) {
        self.in_flight = self.in_flight.saturating_add(counts.in_flight.into());
        self.ok = self.ok.saturating_add(counts.ok);
        self.busy = self.busy.saturating_add(counts.busy);
        self.broken = self.broken.saturating_add(counts.broken);
        self.cancelled = self.cancelled.saturating_add(counts.cancelled);
        self.ttft_ms = self.ttft_ms.saturating_add(counts.ttft_ms_sum);
        self.ttft_count = self.ttft_count.saturating_add(counts.ttft_count);
    }
}

#[cfg(test)]
mod tests;
