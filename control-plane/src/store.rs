//! The newest report of each reporter, and the rule of which report is newer.
//!
//! Key: node and part. Within one boot of a reporter the higher sequence number is newer. A boot id is
//! random, so two boots do not compare: the boot that a newer stream brings replaces the earlier one,
//! which is then retired for good. Hence a replay, a duplicate or a late report changes nothing,
//! whatever order they come in. Ages count from the receiver's monotonic clock; what a node's clock
//! shows is not looked at.
//!
//! A reporter that has just started has opened no driver and seen no GPU. Its report counts, but what the
//! boot before it said stays and ages: a restart of a reporter is no news about GPUs.
//!
//! Bounds: nodes, parts of a node and retired boots are limited; a silent node is forgotten.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tidegate_weighting::{
    freshness::fresh_limit,
    input::{DriverStatus, NodeReport},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{bucket::Bucket, config::Limits};

/// Boots of one reporter that are remembered as replaced. A replay from before that many restarts
/// would count as new; with one restart a minute that is 16 minutes ago.
const RETIRED_BOOTS_MAX: usize = 16;

/// Names one stream within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// One stream, and how to end it.
#[derive(Clone, Debug)]
pub struct Stream {
    pub id: StreamId,
    pub stop: CancellationToken,
}

/// A checked report that wants to be stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    pub node: String,
    pub part: String,
    pub boot_id: String,
    pub sequence: u64,
    pub report: NodeReport,
    pub detail: NodeDetail,
}

/// What people want to know about a node and no decision reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeDetail {
    pub reporter_version: String,
    pub driver_version: String,
    pub nvml_version: String,
    pub driver_detail: String,
    pub gpus_expected: Option<u32>,
    pub leaving: bool,
    pub host: Option<HostLoad>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    pub cpu_use_bp: Option<u32>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
}

/// Why a report changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Older than, or the same as, what is stored.
    Sequence { stored: u64 },
    /// From a boot that a newer one has replaced.
    RetiredBoot,
    /// Another boot id on the same stream.
    BootChanged,
    /// More nodes than allowed.
    Nodes { max: usize },
    /// More reporters on one node than allowed.
    Parts { max: usize },
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing that must be told before the next period.
    Usual,
    /// A GPU, the driver or the set of workloads changed: tell the proxies at once.
    Event,
}

/// One reporter, as status shows it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub boot_id: String,
    pub sequence: u64,
    pub received: Instant,
    pub report: Arc<NodeReport>,
    pub detail: NodeDetail,
    pub accepted: u64,
    pub refused: u64,
    /// The stream that its reports come on, while it is open.
    pub stream: Option<Stream>,
    retired: VecDeque<String>,
    bucket: Bucket,
}

#[derive(Debug)]
pub struct Store {
    limits: Limits,
    nodes: BTreeMap<String, BTreeMap<String, Entry>>,
}

impl Store {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), nodes: BTreeMap::new() }
    }

    /// Whether a known reporter may send now; an unknown one may.
    pub fn may_send(&mut self, now: Instant, node: &str, part: &str) -> bool {
        self.entry(node, part).is_none_or(|e| {
            let may = e.bucket.take(now);
            e.refused += u64::from(!may);
            may
        })
    }

    /// Counts a report that was refused before it became an offer.
    pub fn count_refused(&mut self, node: &str, part: &str) {
        if let Some(entry) = self.entry(node, part) {
            entry.refused += 1;
        }
    }

    /// Takes the report if it is newer than what is stored.
    ///
    /// # Errors
    /// Why it is not taken; nothing but the count of refused reports has changed then.
    pub fn offer(
        &mut self,
        now: Instant,
        stream: &Stream,
        offer: Offer,
    ) -> Result<Accepted, Refusal> {
        let Some(entry) = self.entry(&offer.node, &offer.part) else {
            return self.add(now, stream, offer);
        };
        if let Some(refusal) = entry.refusal(stream, &offer) {
            entry.refused += 1;
            return Err(refusal);
        }
        if entry.boot_id != offer.boot_id {
            let old = std::mem::replace(&mut entry.boot_id, offer.boot_id);
            entry.retired.push_back(old);
            if entry.retired.len() > RETIRED_BOOTS_MAX {
                entry.retired.pop_front();
            }
        }
        let accepted = if says_something(&offer.report) {
            let accepted = crate::events::compare(&entry.report, &offer.report);
            entry.report = Arc::new(offer.report);
            accepted
        } else {
            Accepted::Usual
        };
        if let Some(old) = entry.stream.replace(stream.clone())
            && old.id != stream.id
        {
            // One stream per reporter: the newer one wins, since the older may be half dead.
            old.stop.cancel();
        }
        entry.sequence = offer.sequence;
        entry.received = now;
        entry.detail = offer.detail;
        entry.accepted += 1;
        Ok(accepted)
    }

    fn add(&mut self, now: Instant, stream: &Stream, offer: Offer) -> Result<Accepted, Refusal> {
        let node_count = self.nodes.len();
        let parts = match self.nodes.get_mut(&offer.node) {
            Some(parts) => parts,
            None if node_count >= self.limits.nodes => {
                return Err(Refusal::Nodes { max: self.limits.nodes });
            }
            None => self.nodes.entry(offer.node).or_default(),
        };
        if parts.len() >= self.limits.parts_per_node {
            return Err(Refusal::Parts { max: self.limits.parts_per_node });
        }
        let mut bucket =
            Bucket::new(now, self.limits.reports_per_second, self.limits.reports_burst);
        bucket.take(now);
        let entry = Entry {
            boot_id: offer.boot_id,
            sequence: offer.sequence,
            received: now,
            report: Arc::new(offer.report),
            detail: offer.detail,
            accepted: 1,
            refused: 0,
            stream: Some(stream.clone()),
            retired: VecDeque::new(),
            bucket,
        };
        parts.insert(offer.part, entry);
        Ok(Accepted::Event)
    }

    /// Notes that a stream has ended.
    pub fn close(&mut self, stream: StreamId) {
        for entry in self.nodes.values_mut().flat_map(BTreeMap::values_mut) {
            if entry.stream.as_ref().is_some_and(|s| s.id == stream) {
                entry.stream = None;
            }
        }
    }

    /// Forgets reporters that were silent for `expiry`.
    pub fn expire(&mut self, now: Instant, expiry: Duration) {
        for parts in self.nodes.values_mut() {
            parts.retain(|_, e| now.saturating_duration_since(e.received) < expiry);
        }
        self.nodes.retain(|_, parts| !parts.is_empty());
    }

    /// The newest report of each reporter, as weighting reads them.
    #[must_use]
    pub fn reports(&self) -> Vec<NodeReport> {
        self.nodes.values().flat_map(apart).collect()
    }

    /// All reporters by node and part.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str, &Entry)> {
        self.nodes.iter().flat_map(|(node, parts)| {
            parts.iter().map(move |(part, entry)| (node.as_str(), part.as_str(), entry))
        })
    }

    fn entry(&mut self, node: &str, part: &str) -> Option<&mut Entry> {
        self.nodes.get_mut(node)?.get_mut(part)
    }
}

impl Entry {
    fn refusal(&self, stream: &Stream, offer: &Offer) -> Option<Refusal> {
        if self.boot_id == offer.boot_id {
            return (offer.sequence <= self.sequence)
                .then_some(Refusal::Sequence { stored: self.sequence });
        }
        if self.retired.contains(&offer.boot_id) {
            return Some(Refusal::RetiredBoot);
        }
        (self.stream.as_ref().is_some_and(|s| s.id == stream.id)).then_some(Refusal::BootChanged)
    }
}

/// Whether a report says anything about the node yet.
fn says_something(report: &NodeReport) -> bool {
    report.driver != DriverStatus::Unknown || !report.gpus.is_empty()
}

/// The reports of one node's parts, each with its own boot and time: a part that restarts or falls
/// silent is no news about the others. A GPU that two parts list is left to the first by name that is
/// not late, since event numbers of two reporters do not compare.
fn apart(parts: &BTreeMap<String, Entry>) -> Vec<NodeReport> {
    let said = || parts.values().map(|e| &e.report).filter(|r| says_something(r));
    let newest = said().map(|r| r.received).max().unwrap_or_default();
    let is_late = |r: &NodeReport| newest.since(r.received) > fresh_limit(r.interval);
    let mut claimed = BTreeSet::new();
    let in_time = said().filter(|r| !is_late(r));
    let mut all: Vec<NodeReport> =
        in_time.chain(said().filter(|r| is_late(r))).map(|r| NodeReport::clone(r)).collect();
    for report in &mut all {
        report.gpus.retain(|gpu| claimed.insert(gpu.uuid.clone()));
    }
    all
}

#[cfg(test)]
mod tests;
