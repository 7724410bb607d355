//! Counts of the workers: shared, summed, and turned into feedback per window.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use super::service::Service;
use crate::{
    ladder::Rung,
    local::{
        EndpointCounts, EndpointFeedback, Feedback, PEER_AGE_MAX, ServiceCounts, ServiceFeedback,
        Totals, WorkerCounts,
    },
    units::{Span, Time},
};

/// After a longer pause the counts start anew: another worker has told the control plane meanwhile.
const WINDOW_MAX: Span = Span::secs(15);

pub(super) fn is_live(peer: &WorkerCounts, now: Time) -> bool {
    now.since(peer.at) <= PEER_AGE_MAX
}

pub(super) fn of(worker: u64, now: Time, services: &[Service]) -> WorkerCounts {
    let endpoints = |service: &Service| {
        let counted =
            service.endpoints().iter().filter(|e| e.local.own > 0 || !e.local.totals.is_zero());
        counted
            .map(|e| EndpointCounts {
                address: e.address.clone(),
                in_flight: e.local.own,
                totals: e.local.totals,
            })
            .collect()
    };
    let services = services
        .iter()
        .map(|s| ServiceCounts {
            service: s.name.clone(),
            arrivals: s.arrivals,
            endpoints: endpoints(s),
        })
        .collect();
    WorkerCounts { worker, at: now, services }
}

/// In-flight requests of all `peers` in one service, by endpoint.
pub(super) fn in_flight<'a>(peers: &'a [WorkerCounts], name: &str) -> BTreeMap<&'a str, u32> {
    let mut in_flight: BTreeMap<&str, u32> = BTreeMap::new();
    for service in peers.iter().flat_map(|p| &p.services).filter(|s| *s.service == *name) {
        for endpoint in &service.endpoints {
            let sum = in_flight.entry(&endpoint.address).or_insert(0);
            *sum = sum.saturating_add(endpoint.in_flight);
        }
    }
    in_flight
}

/// Arrivals in one service between two readings of the same workers. A worker that comes, or comes
/// back, has counted for a time that nobody knows: its count begins now.
pub(super) fn new_arrivals(before: &[WorkerCounts], after: &[WorkerCounts], name: &str) -> u64 {
    let arrivals = |worker: &WorkerCounts| {
        worker.services.iter().find(|s| *s.service == *name).map_or(0, |s| s.arrivals)
    };
    let mut sum = 0_u64;
    for worker in after {
        if let Some(past) = before.iter().find(|past| past.worker == worker.worker) {
            sum = sum.saturating_add(arrivals(worker).saturating_sub(arrivals(past)));
        }
    }
    sum
}

/// In flight and totals by address.
type ByAddress = BTreeMap<Arc<str>, (u32, Totals)>;

/// The difference between `workers` and what they counted at the last feedback.
pub(super) fn feedback(
    now: Time,
    workers: &[WorkerCounts],
    before: Option<&(Time, Vec<WorkerCounts>)>,
    rung: Rung,
) -> Feedback {
    let before = before.filter(|(at, _)| now.since(*at) <= WINDOW_MAX);
    let window = before.map_or(Span::ZERO, |(at, _)| now.since(*at));
    let mut services: BTreeMap<Arc<str>, (u64, ByAddress)> = BTreeMap::new();
    for worker in workers {
        // A worker that was not there before has an unknown past: its counts begin now.
        let past = before.and_then(|(_, list)| list.iter().find(|w| w.worker == worker.worker));
        for service in &worker.services {
            let past_service =
                past.map(|w| w.services.iter().find(|s| s.service == service.service));
            let (arrivals, endpoints) = services.entry(service.service.clone()).or_default();
            let new = match past_service {
                None => 0,
                Some(None) => service.arrivals,
                Some(Some(past)) => service.arrivals.saturating_sub(past.arrivals),
            };
            *arrivals = arrivals.saturating_add(new);
            for e in &service.endpoints {
                let past_endpoint = past_service.map(|s| s.and_then(|s| find(s, &e.address)));
                let new = match past_endpoint {
                    None => Totals::default(),
                    Some(None) => e.totals,
                    Some(Some(past)) => e.totals.since(past.totals),
                };
                let (in_flight, totals) = endpoints.entry(e.address.clone()).or_default();
                *in_flight = in_flight.saturating_add(e.in_flight);
                *totals = totals.plus(new);
            }
        }
    }
    let services = services
        .into_iter()
        .map(|(service, (arrivals, endpoints))| ServiceFeedback {
            service,
            arrivals,
            endpoints: endpoints
                .into_iter()
                .filter(|(_, (in_flight, totals))| *in_flight > 0 || !totals.is_zero())
                .map(|(address, (in_flight, totals))| EndpointFeedback {
                    address,
                    in_flight,
                    totals,
                })
                .collect(),
        })
        .collect();
    Feedback { window, services, rung }
}

/// Counts stand in the order of addresses; a list that does not is merely not found in.
fn find<'a>(service: &'a ServiceCounts, address: &str) -> Option<&'a EndpointCounts> {
    let at = service.endpoints.binary_search_by(|e| (*e.address).cmp(address)).ok()?;
    service.endpoints.get(at)
}
