//! The gate: one per worker, it composes all decisions on a request's way.
//!
//! `on_request` classifies, looks at the standing of the service, picks, and answers with a
//! [`Decision`]; a steered request gets a [`Ticket`], under which its end is reported. Between
//! requests, `on_tick` moves averages and histories, `on_snapshot` joins what the control plane says
//! and `on_peers` what the other workers of this Envoy count.
//!
//! It fails open: a request that no service takes, or whose service is unknown to the control plane,
//! passes to Envoy's own load balancer. Only when a fresh snapshot says that every endpoint is down is
//! a request answered here. Nothing depends on every request being ended: open requests have a limit
//! in number and age, and counts stop at zero.

use alloc::{collections::BTreeMap, rc::Rc, string::String, sync::Arc, vec::Vec};

use crate::{
    address,
    chance::Chance,
    classify::{RequestFacts, classify},
    config::{Config, ExistingList, Mode, Policy, ServiceConfig},
    decision::{AnswerReason, Decision, PassReason, PickReason, Ticket},
    ladder::Rung,
    local::{Feedback, Local, Totals, WorkerCounts},
    pick::{Method, Picker, Row, Table},
    snapshot::Fleet,
    units::{Span, Time},
};

mod counts;
mod ending;
mod health;
mod service;

pub use ending::ServedFacts;
use service::{Service, Standing};

/// A snapshot that says "all down" is believed for this long.
const DOWN_AGE_MAX: Span = Span::secs(30);
/// An open request of this age ended without telling.
pub const OPEN_AGE_MAX: Span = Span::secs(3_600);
/// Most open requests; one more ends the oldest.
pub const OPEN_MAX: usize = 65_536;
/// Fallbacks at most, whatever the retries.
const FALLBACKS_MAX: usize = 3;
/// `retry-after` when no endpoint is up: 1..=3 s, so that clients do not come back together.
const RETRY_AFTER_S: u64 = 3;

/// All decisions of one worker.
#[derive(Debug)]
pub struct Gate {
    config: Rc<Config>,
    worker: u64,
    services: Vec<Service>,
    picker: Picker,
    open: BTreeMap<u64, Open>,
    next_ticket: u64,
    peers: Vec<WorkerCounts>,
    fed_back: Option<(Time, Vec<WorkerCounts>)>,
}

/// A request on its way.
#[derive(Debug)]
struct Open {
    service: usize,
    started: Time,
    /// Endpoints in the order of tries; empty when only observed.
    list: Vec<Arc<str>>,
    /// The endpoint that is charged with the request.
    charged: Option<Arc<str>>,
    /// Time to the first byte, at first to response headers; and that earlier tries are settled.
    answered: Option<Span>,
}

impl Gate {
    /// `worker` is drawn at random when the worker starts.
    #[must_use]
    pub fn new(now: Time, worker: u64, config: Rc<Config>) -> Self {
        let services =
            config.services.iter().map(|s| Service::new(now, &s.name, s.slow_start)).collect();
        Self {
            config,
            worker,
            services,
            picker: Picker::new(),
            open: BTreeMap::new(),
            next_ticket: 0,
            peers: Vec::new(),
            fed_back: None,
        }
    }

    #[must_use]
    pub const fn config(&self) -> &Rc<Config> {
        &self.config
    }

    /// Takes another configuration; services of the same name keep their state, tickets stay good.
    pub fn reconfigure(&mut self, now: Time, config: Rc<Config>) {
        let mut old: Vec<Option<Service>> =
            core::mem::take(&mut self.services).into_iter().map(Some).collect();
        let mut moved = BTreeMap::new();
        for (to, wanted) in config.services.iter().enumerate() {
            let from = old.iter().position(|s| s.as_ref().is_some_and(|s| *s.name == *wanted.name));
            let kept = from.and_then(|from| {
                moved.insert(from, to);
                old.get_mut(from)?.take()
            });
            let mut service =
                kept.unwrap_or_else(|| Service::new(now, &wanted.name, wanted.slow_start));
            service.set_slow_start(wanted.slow_start);
            self.services.push(service);
        }
        self.open.retain(|_, open| match moved.get(&open.service) {
            Some(to) => {
                open.service = *to;
                true
            }
            None => false,
        });
        self.config = config;
    }

    /// Decides on a request.
    pub fn on_request(
        &mut self,
        now: Time,
        chance: &mut Chance,
        facts: &RequestFacts<'_>,
    ) -> Decision {
        let config = Rc::clone(&self.config);
        let Some((index, rules)) =
            classify(&config, facts).and_then(|i| Some((i, config.services.get(i)?)))
        else {
            return Decision::Pass { service: None, reason: PassReason::NoService };
        };
        let pass = |reason| Decision::Pass { service: Some(index), reason };
        let Some(service) = self.services.get_mut(index) else {
            return pass(PassReason::NoSnapshot);
        };
        service.arrivals = service.arrivals.saturating_add(1);
        let standing = match service.keep_fresh(now) {
            Standing::NoSnapshot => return pass(PassReason::NoSnapshot),
            Standing::NoEndpoints => return pass(PassReason::NoEndpoints),
            Standing::Down => {
                let is_recent = service.heard_ago(now).is_some_and(|age| age <= DOWN_AGE_MAX);
                if !is_recent {
                    return pass(PassReason::DownLongAgo);
                }
                if rules.mode == Mode::Observe {
                    return pass(PassReason::DownObserved);
                }
                let seconds = chance.below(RETRY_AFTER_S).saturating_add(1);
                return Decision::Answer {
                    service: index,
                    status: 503,
                    reason: AnswerReason::NoEndpoints,
                    retry_after_s: u32::try_from(seconds).unwrap_or(1),
                };
            }
            Standing::Ready(reason) => reason,
        };
        let existing = match rules.existing_list {
            ExistingList::Reorder => facts.existing_list.and_then(address::parse_list),
            ExistingList::Replace => None,
        };
        let (list, reason) = match existing {
            Some(existing) => match self.reorder(now, index, rules, chance, &existing) {
                Some(list) => (list, PickReason::Reordered),
                None => return pass(PassReason::ListKept),
            },
            None => {
                let (list, reason) = self.pick(now, index, rules, chance);
                if list.is_empty() {
                    return pass(PassReason::NoEndpoints);
                }
                (list, standing.unwrap_or(reason))
            }
        };
        self.dispatch(now, index, rules, list, reason)
    }

    fn pick(
        &mut self,
        now: Time,
        index: usize,
        rules: &ServiceConfig,
        chance: &mut Chance,
    ) -> (Vec<Arc<str>>, PickReason) {
        let Some(service) = self.services.get_mut(index) else {
            return (Vec::new(), PickReason::Only);
        };
        let method = method(rules.policy, service, now);
        let fallbacks = usize::from(rules.retries).saturating_add(1).min(FALLBACKS_MAX);
        let want = fallbacks.saturating_add(1);
        let picked = self.picker.pick(method, &mut service.table, chance, want);
        let list: Vec<Arc<str>> =
            picked.order.iter().filter_map(|row| service.address(*row).cloned()).collect();
        let reason = match (picked.reason, service.rung()) {
            (PickReason::OwnCounts, Rung::TypeCapacity) => PickReason::TypeCapacity,
            (PickReason::OwnCounts, Rung::EqualWeights) => PickReason::EqualWeights,
            (reason, _) => reason,
        };
        (list, reason)
    }

    /// The endpoints of `existing` that may stay, in our order; `None` when none may.
    fn reorder(
        &mut self,
        now: Time,
        index: usize,
        rules: &ServiceConfig,
        chance: &mut Chance,
        existing: &[String],
    ) -> Option<Vec<Arc<str>>> {
        let service = self.services.get_mut(index)?;
        let staying: Vec<&String> = existing.iter().filter(|a| service.may_stay(a)).collect();
        if staying.is_empty() {
            return None;
        }
        let known: Vec<Row> = staying
            .iter()
            .filter_map(|a| service.table.rows().get(service.position(a)?).copied())
            .collect();
        let typical = |of: fn(&Row) -> f64| {
            let healthy = known.iter().filter(|row| row.health > 0.0);
            crate::success::median(&mut healthy.map(of).collect::<Vec<f64>>())
        };
        // An endpoint that the control plane does not know counts as a typical one of unknown load: it
        // must not win because the others still warm up.
        let stranger = Row {
            reported: crate::pick::Reported::Unknown,
            health: typical(|row| row.health),
            ..Row::idle(typical(|row| row.weight))
        };
        let rows: Vec<Row> = staying
            .iter()
            .map(|a| {
                let at = service.position(a);
                at.and_then(|at| service.table.rows().get(at)).copied().unwrap_or(stranger)
            })
            .collect();
        let mut table = Table::new(rows);
        let method = method(rules.policy, service, now);
        let picked = self.picker.pick(method, &mut table, chance, staying.len());
        let mut order: Vec<usize> = picked.order.to_vec();
        // Endpoints without health come last: they are named, so they stay.
        order.extend((0..staying.len()).filter(|i| !picked.order.contains(i)));
        Some(order.iter().filter_map(|i| staying.get(*i)).map(|a| Arc::from(a.as_str())).collect())
    }

    fn dispatch(
        &mut self,
        now: Time,
        index: usize,
        rules: &ServiceConfig,
        list: Vec<Arc<str>>,
        reason: PickReason,
    ) -> Decision {
        let text = address::join(&list);
        let ticket = self.next_ticket;
        self.next_ticket = self.next_ticket.wrapping_add(1);
        if self.open.len() >= OPEN_MAX
            && let Some((_, oldest)) = self.open.pop_first()
        {
            self.forget(oldest);
        }
        let (list, charged) = match rules.mode {
            Mode::Enforce => {
                let first = list.first().cloned();
                (list, first)
            }
            Mode::Observe => (Vec::new(), None),
        };
        if let Some(address) = &charged {
            self.with_local(index, address, Local::start);
        }
        let open = Open { service: index, started: now, list, charged, answered: None };
        self.open.insert(ticket, open);
        Decision::Steer {
            service: index,
            ticket: Ticket(ticket),
            list: text,
            retries: rules.retries,
            reason,
            mode: rules.mode,
        }
    }

    /// A moment has passed; call it every 50 to 200 ms.
    pub fn on_tick(&mut self, now: Time) {
        while let Some(oldest) = self.open.first_entry() {
            if now.since(oldest.get().started) <= OPEN_AGE_MAX {
                break;
            }
            let oldest = oldest.remove();
            self.forget(oldest);
        }
        let before = self.peers.len();
        self.peers.retain(|peer| counts::is_live(peer, now));
        if self.peers.len() < before {
            self.count_peers();
        }
        for service in &mut self.services {
            service.on_tick(now);
        }
    }

    /// The fleet has changed or was confirmed.
    pub fn on_snapshot(&mut self, now: Time, fleet: &Fleet) {
        for service in &mut self.services {
            service.on_snapshot(now, fleet);
        }
        self.count_peers();
    }

    /// What the other workers of this Envoy count; each call replaces the one before.
    pub fn on_peers(&mut self, now: Time, peers: Vec<WorkerCounts>) {
        let mut peers = peers;
        peers.retain(|peer| peer.worker != self.worker && counts::is_live(peer, now));
        for service in &mut self.services {
            let arrivals = counts::new_arrivals(&self.peers, &peers, &service.name);
            service.peer_arrivals = service.peer_arrivals.saturating_add(arrivals);
        }
        self.peers = peers;
        self.count_peers();
    }

    fn count_peers(&mut self) {
        for service in &mut self.services {
            service.set_peers(&counts::in_flight(&self.peers, &service.name));
        }
    }

    /// This worker's counts, to be shared with the others.
    #[must_use]
    pub fn counts(&self, now: Time) -> WorkerCounts {
        counts::of(self.worker, now, &self.services)
    }

    /// What this Envoy has to tell the control plane; only the worker that holds the stream asks.
    #[must_use]
    pub fn feedback(&mut self, now: Time) -> Feedback {
        let mut workers = Vec::with_capacity(self.peers.len().saturating_add(1));
        workers.push(self.counts(now));
        workers.extend(self.peers.iter().cloned());
        let feedback = counts::feedback(now, &workers, self.fed_back.as_ref(), self.rung());
        self.fed_back = Some((now, workers));
        feedback
    }

    /// The worst rung of all services.
    #[must_use]
    pub fn rung(&self) -> Rung {
        self.services.iter().map(Service::rung).max().unwrap_or(Rung::NoSnapshot)
    }

    /// Name and rung of each service, in configuration order.
    pub fn rungs(&self) -> impl Iterator<Item = (&Arc<str>, Rung)> {
        self.services.iter().map(|service| (&service.name, service.rung()))
    }

    /// Requests that are on their way.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Own counts of one endpoint.
    #[must_use]
    pub fn totals(&self, service: &str, address: &str) -> Option<(u32, Totals)> {
        let service = self.services.iter().find(|s| *s.name == *service)?;
        let endpoint = service.endpoints().get(service.position(address)?)?;
        Some((endpoint.local.own, endpoint.local.totals))
    }
}

fn method(policy: Policy, service: &Service, now: Time) -> Method {
    let believes_counts = service.rung() <= Rung::Ageing;
    let believes_memory = service.rung() <= Rung::CountsIgnored;
    match policy {
        Policy::LiSlots if believes_counts => Method::LiSlots(service.demand(now)),
        Policy::LeastRequest if believes_counts => Method::LeastRequest,
        Policy::LiSlots | Policy::LeastRequest => Method::OwnCounts,
        Policy::FreeMemory if believes_memory => Method::FreeMemory,
        Policy::FreeMemory | Policy::Weighted => Method::Weighted,
    }
}

#[cfg(test)]
mod tests;
