//! One service in one worker: what the snapshot says of its endpoints, joined with own counts.
//!
//! Rows of the pick table stand at the same index as their endpoints. A snapshot joins by address, so
//! counts, success rates and turns of an endpoint outlive every update. An endpoint that is gone keeps
//! its row, without health, until its last request has ended.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use crate::{
    decision::PickReason,
    ladder::{Rung, counts_age_max},
    local::Local,
    pick::{Arrivals, Demand, Rate, Reported, Row, Table},
    snapshot::{self, Fleet, Hard},
    success::{self, Success},
    units::{Span, Time},
};

/// The table is derived again after this time also when nothing was heard.
const REFRESH: Span = Span::ms(100);
/// Tables up to this size are derived again with each failure, larger ones at the next tick.
const EAGER_MAX: usize = 64;

/// What can be done with a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    NoSnapshot,
    /// The control plane knows the service but no endpoint of it.
    NoEndpoints,
    /// Every endpoint is hard-down.
    Down,
    /// Pick; the reason overrides that of the method.
    Ready(Option<PickReason>),
}

#[derive(Debug)]
pub(super) struct Endpoint {
    pub address: Arc<str>,
    /// What the snapshot says; `None` when the endpoint is gone.
    pub data: Option<snapshot::Endpoint>,
    pub local: Local,
    pub success: Success,
}

#[derive(Debug)]
pub(super) struct Service {
    pub name: Arc<str>,
    pub(super) slow_start: Span,
    pub(super) endpoints: Vec<Endpoint>,
    pub table: Table,
    heard: Option<Heard>,
    pub arrivals: u64,
    arrivals_fed: u64,
    /// Arrivals at the other workers since the last tick.
    pub peer_arrivals: u64,
    rate: Rate,
    pub(super) rung: Rung,
    standing: Standing,
    refreshed: Option<Time>,
    pub(super) rates: Vec<f64>,
}

/// What the snapshot says of the service as a whole.
#[derive(Clone, Copy, Debug)]
struct Heard {
    received: Time,
    period: Span,
    proxies_live: u32,
    fleet_rate: Option<f64>,
    mean_service: Option<Span>,
    /// Least age of any endpoint's data when the snapshot came.
    data_age: Span,
}

impl Service {
    pub(super) fn new(now: Time, name: &str, slow_start: Span) -> Self {
        Self {
            name: Arc::from(name),
            slow_start,
            endpoints: Vec::new(),
            table: Table::default(),
            heard: None,
            arrivals: 0,
            arrivals_fed: 0,
            peer_arrivals: 0,
            rate: Rate::new(now),
            rung: Rung::NoSnapshot,
            standing: Standing::NoSnapshot,
            refreshed: None,
            rates: Vec::new(),
        }
    }

    pub(super) const fn set_slow_start(&mut self, slow_start: Span) {
        self.slow_start = slow_start;
        self.refreshed = None;
    }

    pub(super) const fn rung(&self) -> Rung {
        self.rung
    }

    /// Time since the control plane was heard on this service.
    pub(super) fn heard_ago(&self, now: Time) -> Option<Span> {
        self.heard.map(|heard| now.since(heard.received))
    }

    pub(super) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub(super) fn address(&self, row: usize) -> Option<&Arc<str>> {
        self.endpoints.get(row).map(|e| &e.address)
    }

    pub(super) fn position(&self, address: &str) -> Option<usize> {
        self.endpoints.binary_search_by(|e| (*e.address).cmp(address)).ok()
    }

    /// Whether the endpoint may stay in a list that another picker made; unknown ones may.
    pub(super) fn may_stay(&self, address: &str) -> bool {
        let data = self.position(address).and_then(|at| self.endpoints.get(at)?.data.as_ref());
        data.is_none_or(|data| data.hard == Hard::Up)
    }

    /// Joins what `fleet` says of the service.
    pub(super) fn on_snapshot(&mut self, now: Time, fleet: &Fleet) {
        let (Some(received), Some(service)) = (fleet.received(), fleet.service(&self.name)) else {
            self.heard = None;
            for endpoint in &mut self.endpoints {
                endpoint.data = None;
            }
            self.prune();
            self.refresh(now);
            return;
        };
        // Where nobody reports, what the proxies count is as new as the update.
        let counted = |e: &snapshot::Endpoint| e.in_flight.map(|_| Span::ZERO);
        let data_age =
            service.endpoints().filter_map(|(_, e)| e.data_age(received).or(counted(e))).min();
        let heard = Heard {
            received,
            period: fleet.period(),
            proxies_live: fleet.proxies_live(),
            fleet_rate: service.arrival_rate,
            mean_service: service.mean_service,
            data_age: data_age.unwrap_or(Span::ZERO),
        };
        self.heard = Some(heard);
        self.join(now, service);
        self.fill_rows(&heard);
        self.prune();
        self.refresh(now);
    }

    /// Merges two sequences in the order of addresses.
    fn join(&mut self, now: Time, service: &snapshot::Service) {
        let same = self.endpoints.len() == service.len()
            && self.endpoints.iter().zip(service.endpoints()).all(|(e, (a, _))| e.address == *a);
        if same {
            for (endpoint, (_, data)) in self.endpoints.iter_mut().zip(service.endpoints()) {
                endpoint.data = Some(data.clone());
            }
            return;
        }
        let mut rows = core::mem::take(self.table.rows_mut()).into_iter();
        let mut known: BTreeMap<Arc<str>, (Endpoint, Row)> = BTreeMap::new();
        for endpoint in self.endpoints.drain(..) {
            let row = rows.next().unwrap_or(Row::idle(1.0));
            known.insert(endpoint.address.clone(), (Endpoint { data: None, ..endpoint }, row));
        }
        for (address, data) in service.endpoints() {
            let (endpoint, _) = known.entry(address.clone()).or_insert_with(|| {
                let fresh = Endpoint {
                    address: address.clone(),
                    data: None,
                    local: Local::default(),
                    success: Success::new(now),
                };
                (fresh, Row::idle(1.0))
            });
            endpoint.data = Some(data.clone());
        }
        for (endpoint, row) in known.into_values() {
            self.endpoints.push(endpoint);
            self.table.rows_mut().push(row);
        }
    }

    /// What changes with a snapshot only: reported load, slots, node, memory.
    fn fill_rows(&mut self, heard: &Heard) {
        let mut nodes: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let counts_age_max = counts_age_max(heard.period);
        let rows = self.table.rows_mut();
        for (row, endpoint) in rows.iter_mut().zip(&self.endpoints) {
            let Some(data) = &endpoint.data else { continue };
            // Counts that the proxies themselves reported are about a period old.
            let age = data.data_age(heard.received).unwrap_or(heard.period);
            let then = endpoint.local.in_flight_at(heard.received.minus(age));
            row.reported = match data.in_flight {
                None => Reported::Unknown,
                Some(n) => {
                    let others = f64::from(n) - f64::from(then);
                    if age > counts_age_max {
                        Reported::Stale { others }
                    } else {
                        Reported::Fresh { others }
                    }
                }
            };
            row.slots = data.slots.map(f64::from);
            row.memory_free = data.memory_free.map(crate::units::BasisPoints::ratio);
            row.node = if data.node.is_empty() {
                0
            } else {
                let next = u32::try_from(nodes.len()).unwrap_or(0).saturating_add(1);
                *nodes.entry(data.node.clone()).or_insert(next)
            };
            row.own = f64::from(endpoint.local.in_flight());
        }
    }

    /// Drops endpoints that are gone and have no request left.
    fn prune(&mut self) {
        if self.endpoints.iter().all(|e| e.data.is_some() || !e.local.is_idle()) {
            return;
        }
        let mut keep = self.endpoints.iter().map(|e| e.data.is_some() || !e.local.is_idle());
        self.table.rows_mut().retain(|_| keep.next().unwrap_or(false));
        self.endpoints.retain(|e| e.data.is_some() || !e.local.is_idle());
        self.refreshed = None;
    }

    /// Derives rung, standing and health unless that was done a moment ago.
    pub(super) fn keep_fresh(&mut self, now: Time) -> Standing {
        let is_fresh = self.refreshed.is_some_and(|at| at <= now && now.since(at) < REFRESH);
        if !is_fresh {
            self.refresh(now);
        }
        self.standing
    }

    fn refresh(&mut self, now: Time) {
        self.refreshed = Some(now);
        self.rung = match &self.heard {
            Some(heard) => {
                let age = now.since(heard.received).plus(heard.data_age);
                Rung::at(Some(age), heard.period)
            }
            None => Rung::NoSnapshot,
        };
        self.standing = self.derive(now);
        self.table.refresh();
    }

    /// What water-filling pours now.
    pub(super) fn demand(&self, now: Time) -> Demand {
        let heard = self.heard;
        Demand::of(&Arrivals {
            fleet_rate: heard.and_then(|h| h.fleet_rate),
            own_rate: self.own_rate(),
            proxies_live: heard.map_or(1, |h| h.proxies_live),
            period: heard.map_or(Span::ZERO, |h| h.period),
            age: heard.map_or(Span::ZERO, |h| now.since(h.received).plus(h.data_age)),
            mean_service: heard.and_then(|h| h.mean_service),
        })
    }

    /// Requests a second that this Envoy gets.
    pub(super) const fn own_rate(&self) -> f64 {
        self.rate.per_second()
    }

    /// Changes the counts of one endpoint, and its row with them.
    pub(super) fn with_local(&mut self, address: &str, change: impl FnOnce(&mut Local)) {
        let Some(at) = self.position(address) else { return };
        if let Some(endpoint) = self.endpoints.get_mut(at) {
            change(&mut endpoint.local);
            if let Some(row) = self.table.row_mut(at) {
                row.own = f64::from(endpoint.local.in_flight());
            }
        }
    }

    /// Judges one try at an endpoint.
    pub(super) fn judge(&mut self, now: Time, address: &str, verdict: success::Verdict) {
        let Some(at) = self.position(address) else { return };
        if let Some(endpoint) = self.endpoints.get_mut(at) {
            endpoint.success.record(now, verdict);
            if verdict == success::Verdict::Failure && self.endpoints.len() <= EAGER_MAX {
                self.refreshed = None;
            }
        }
    }

    /// Takes the in-flight counts of the other workers.
    pub(super) fn set_peers(&mut self, in_flight: &BTreeMap<&str, u32>) {
        for (at, endpoint) in self.endpoints.iter_mut().enumerate() {
            endpoint.local.peers = in_flight.get(&*endpoint.address).copied().unwrap_or(0);
            if let Some(row) = self.table.row_mut(at) {
                row.own = f64::from(endpoint.local.in_flight());
            }
        }
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        let own = self.arrivals.saturating_sub(self.arrivals_fed);
        self.rate.feed(now, own.saturating_add(self.peer_arrivals));
        self.arrivals_fed = self.arrivals;
        self.peer_arrivals = 0;
        for endpoint in &mut self.endpoints {
            endpoint.local.mark(now);
        }
        self.prune();
        self.refresh(now);
    }
}
